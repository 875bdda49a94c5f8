// Text to token ids and back.

#ifndef SERVER_TOKENIZER_TOKENIZER_H_
#define SERVER_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace flash {

// Thread safety: all functions are const and may be called from any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // False for a model that takes and gives token ids only: Encode() then fails
  // and every piece is empty.
  virtual bool has_text() const = 0;

  // Ids at and above this have no piece (a padded vocabulary): they are never
  // sampled, and refused in prompts that are decoded to text.
  virtual int num_pieces() const = 0;

  // The ids of `text`, without BOS. FAILED_PRECONDITION if has_text() is false;
  // INVALID_ARGUMENT if `text` is not valid UTF-8 and the type needs that.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(
      std::string_view text) const = 0;

  // The bytes that `id` adds to a text. Control tokens (BOS, EOS, padding) add
  // none; a piece may be part of a UTF-8 character. Never fails: empty for ids
  // without a piece. `first`: whether it begins the text (SentencePiece's
  // dummy prefix is dropped there).
  enum class Place { kFirst, kLater };
  virtual std::string Piece(int32_t id, Place place) const = 0;
};

}  // namespace flash

#endif  // SERVER_TOKENIZER_TOKENIZER_H_
