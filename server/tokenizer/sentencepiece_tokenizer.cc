#include "server/tokenizer/sentencepiece_tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/tokenizer/detokenizer.h"

namespace flash {

absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>>
SentencePieceTokenizer::Create(std::string_view serialized) {
  std::string error = "it is empty";
  std::unique_ptr<SentencePieceLibrary> library;
  if (!serialized.empty()) {
    library = SentencePieceLibrary::Load(serialized, error);
  }
  if (library == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a SentencePiece model: ", error));
  }
  return std::unique_ptr<SentencePieceTokenizer>(
      new SentencePieceTokenizer(std::move(library)));
}

SentencePieceTokenizer::SentencePieceTokenizer(
    std::unique_ptr<const SentencePieceLibrary> library)
    : library_(std::move(library)),
      adds_dummy_prefix_(library_->AddsDummyPrefix()) {
  pieces_.reserve(library_->num_pieces());
  for (int id = 0; id < library_->num_pieces(); ++id) {
    pieces_.push_back(library_->Surface(id));
  }
}

absl::StatusOr<std::vector<int32_t>> SentencePieceTokenizer::Encode(
    std::string_view text, Place place) const {
  // The library would put U+FFFD in silence where the text is no UTF-8.
  if (!IsValidUtf8(text)) {
    return absl::InvalidArgumentError("the text is not valid UTF-8");
  }
  std::vector<int32_t> ids;
  std::string error;
  const bool encoded = place == Place::kFirst
                           ? library_->Encode(text, ids, error)
                           : library_->EncodeLater(text, ids, error);
  if (!encoded) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer refuses the text: ", error));
  }
  return ids;
}

std::string SentencePieceTokenizer::Piece(int32_t id, Place place) const {
  if (id < 0 || id >= num_pieces()) return {};
  const std::string& piece = pieces_[id];
  const bool drop_space = place == Place::kFirst && adds_dummy_prefix_ &&
                          piece.starts_with(' ') &&
                          library_->BeginsWithSpaceSymbol(id);
  return drop_space ? piece.substr(1) : piece;
}

std::optional<int32_t> SentencePieceTokenizer::bos_id() const {
  if (library_->bos_id() < 0) return std::nullopt;
  return library_->bos_id();
}

std::optional<int32_t> SentencePieceTokenizer::eos_id() const {
  if (library_->eos_id() < 0) return std::nullopt;
  return library_->eos_id();
}

}  // namespace flash
