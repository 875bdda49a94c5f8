#include "server/tokenizer/sentencepiece_library.h"

#include <sentencepiece_processor.h>

#include <string>
#include <type_traits>
#include <utility>

namespace flash {
namespace {

// How SentencePiece writes a space within a piece: U+2581.
constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return 0;
}

// "<0x41>" is the byte 41.
std::string ByteOf(std::string_view piece) {
  if (piece.size() != 6) return {};
  return std::string(
      1, static_cast<char>(HexDigit(piece[3]) * 16 + HexDigit(piece[4])));
}

std::string WithSpaces(std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    if (piece.starts_with(kSpaceSymbol)) {
      text.push_back(' ');
      piece.remove_prefix(kSpaceSymbol.size());
    } else {
      text.push_back(piece.front());
      piece.remove_prefix(1);
    }
  }
  return text;
}

// A ModelProto whose normalizer_spec (field 3) says add_dummy_prefix (field 3)
// and remove_extra_whitespaces (field 4) are false. Put after another one it
// changes these two and nothing else: of a message that comes twice a parser
// merges the fields, and of a number that comes twice it takes the last.
constexpr std::string_view kLaterSpec("\x1A\x04\x18\x00\x20\x00", 6);

bool EncodeWith(const sentencepiece::SentencePieceProcessor& processor,
                std::string_view text, std::vector<int32_t>& ids,
                std::string& error) {
  static_assert(std::is_same_v<int32_t, int>);
  const auto status = processor.Encode(text, &ids);
  if (!status.ok()) error = status.ToString();
  return status.ok();
}

}  // namespace

struct SentencePieceLibrary::Rep {
  sentencepiece::SentencePieceProcessor processor;
  sentencepiece::SentencePieceProcessor later;  // for texts that go on others
};

SentencePieceLibrary::SentencePieceLibrary(std::unique_ptr<Rep> rep)
    : rep_(std::move(rep)) {}
SentencePieceLibrary::~SentencePieceLibrary() = default;

std::unique_ptr<SentencePieceLibrary> SentencePieceLibrary::Load(
    std::string_view serialized, std::string& error) {
  auto rep = std::make_unique<Rep>();
  auto status = rep->processor.LoadFromSerializedProto(serialized);
  if (status.ok()) {
    // What this returns is not of interest: a file may have samples of text
    // with the pieces that they should give, which are others here. If that is
    // all, status() is well.
    rep->later
        .LoadFromSerializedProto(std::string(serialized).append(kLaterSpec))
        .IgnoreError();
    status = rep->later.status();
  }
  if (!status.ok()) {
    error = status.ToString();
    return nullptr;
  }
  return std::unique_ptr<SentencePieceLibrary>(
      new SentencePieceLibrary(std::move(rep)));
}

int SentencePieceLibrary::num_pieces() const {
  return rep_->processor.GetPieceSize();
}
int SentencePieceLibrary::bos_id() const { return rep_->processor.bos_id(); }
int SentencePieceLibrary::eos_id() const { return rep_->processor.eos_id(); }

std::string SentencePieceLibrary::Surface(int id) const {
  const auto& processor = rep_->processor;
  if (processor.IsControl(id) || processor.IsUnused(id)) return {};
  if (processor.IsUnknown(id)) {
    // The model's file may name another surface than U+2047: ask the library.
    return Decode({id});
  }
  const std::string& piece = processor.IdToPiece(id);
  return processor.IsByte(id) ? ByteOf(piece) : WithSpaces(piece);
}

bool SentencePieceLibrary::BeginsWithSpaceSymbol(int id) const {
  return rep_->processor.IdToPiece(id).starts_with(kSpaceSymbol);
}

bool SentencePieceLibrary::AddsDummyPrefix() const {
  std::vector<std::string> pieces;
  return rep_->processor.Encode("a", &pieces).ok() && !pieces.empty() &&
         pieces.front().starts_with(kSpaceSymbol);
}

bool SentencePieceLibrary::Encode(std::string_view text,
                                  std::vector<int32_t>& ids,
                                  std::string& error) const {
  return EncodeWith(rep_->processor, text, ids, error);
}

bool SentencePieceLibrary::EncodeLater(std::string_view text,
                                       std::vector<int32_t>& ids,
                                       std::string& error) const {
  return EncodeWith(rep_->later, text, ids, error);
}

std::string SentencePieceLibrary::Decode(
    const std::vector<int32_t>& ids) const {
  std::string text;
  if (!rep_->processor.Decode(ids, &text).ok()) return {};
  return text;
}

}  // namespace flash
