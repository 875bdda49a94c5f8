// A SentencePiece model as a Tokenizer.

#ifndef SERVER_TOKENIZER_SENTENCEPIECE_TOKENIZER_H_
#define SERVER_TOKENIZER_SENTENCEPIECE_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/tokenizer/sentencepiece_library.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {

// What pieces add: a byte piece ("<0x41>") its byte; control and unused pieces
// nothing; the unknown piece the model's surface for it, which is " U+2047 "
// unless the file says otherwise, as the library decodes it: the reader sees
// that something stood there. Every other piece its text, with U+2581 as a
// space. At Place::kFirst one leading space is dropped if the model adds a
// dummy prefix.
//
// Some models drop spaces or change characters as they encode, and what they
// drop the pieces cannot add up to. At Place::kLater no space is dropped.
//
// Text in a prompt never becomes a control piece: "<s>" is three characters.
//
// Thread safety: immutable; any thread.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Returns the tokenizer in `serialized`, the bytes of a .model file, or
  // INVALID_ARGUMENT if they are none.
  static absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> Create(
      std::string_view serialized);

  bool has_text() const override { return true; }
  int num_pieces() const override { return static_cast<int>(pieces_.size()); }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              Place place) const override;
  std::string Piece(int32_t id, Place place) const override;
  bool adds_dummy_prefix() const override { return adds_dummy_prefix_; }
  std::optional<int32_t> bos_id() const override;
  std::optional<int32_t> eos_id() const override;

 private:
  explicit SentencePieceTokenizer(
      std::unique_ptr<const SentencePieceLibrary> library);

  const std::unique_ptr<const SentencePieceLibrary> library_;
  const bool adds_dummy_prefix_;
  // All surfaces: decoding a token is a copy of a short string, and the library
  // is asked for encoding only.
  std::vector<std::string> pieces_;
};

}  // namespace flash

#endif  // SERVER_TOKENIZER_SENTENCEPIECE_TOKENIZER_H_
