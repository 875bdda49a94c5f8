// Text to token ids and back.

#ifndef SERVER_TOKENIZER_TOKENIZER_H_
#define SERVER_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/model/config.h"

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

  // Where ids stand: at the beginning of a text (SentencePiece puts its dummy
  // prefix there), or after what is text already.
  enum class Place { kFirst, kLater };

  // The ids of `text`, without BOS; their pieces, the first one at `place`, add
  // up to it. FAILED_PRECONDITION if has_text() is false; INVALID_ARGUMENT if
  // `text` is not valid UTF-8 and the type needs that. Takes time in proportion
  // to the text: long ones do not belong on a thread that must not wait.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                                      Place place) const = 0;

  // The bytes that `id` adds to a text. Control tokens (BOS, EOS, padding) add
  // none; a piece may be part of a UTF-8 character. Never fails: empty for ids
  // without a piece.
  virtual std::string Piece(int32_t id, Place place) const = 0;

  // True if Encode() at kFirst puts a space before the text (SentencePiece's
  // dummy prefix), which Piece() then drops there.
  virtual bool adds_dummy_prefix() const { return false; }

  // What the tokenizer's own file says of BOS and EOS. The model's config.json
  // decides; where the two differ somebody should be warned.
  virtual std::optional<int32_t> bos_id() const { return std::nullopt; }
  virtual std::optional<int32_t> eos_id() const { return std::nullopt; }
};

// Makes the tokenizer that `config` asks for; its file is looked up in
// `model_dir`. Waits for the disk.
//   NOT_FOUND: the file cannot be read.
//   INVALID_ARGUMENT: the file is no tokenizer of that type, or has more pieces
//     than the model's vocabulary has ids. (Fewer are well: the vocabulary is
//     padded.) The message names the file.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(
    const TokenizerConfig& config, const std::string& model_dir,
    int64_t vocab_size);

// Which tokenizer MakeTokenizer() makes of `config`: its type, and the bytes of
// its file. As 32 hexadecimal digits. Waits for the disk. NOT_FOUND: the file
// cannot be read.
absl::StatusOr<std::string> TokenizerDigest(const TokenizerConfig& config,
                                            const std::string& model_dir);

}  // namespace flash

#endif  // SERVER_TOKENIZER_TOKENIZER_H_
