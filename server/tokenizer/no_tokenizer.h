// For a model that takes and gives token ids only.

#ifndef SERVER_TOKENIZER_NO_TOKENIZER_H_
#define SERVER_TOKENIZER_NO_TOKENIZER_H_

#include "server/tokenizer/tokenizer.h"

namespace flash {

// Every id of the vocabulary may be sampled; none has text.
//
// Thread safety: immutable; any thread.
class NoTokenizer final : public Tokenizer {
 public:
  explicit NoTokenizer(int vocab_size) : vocab_size_(vocab_size) {}

  bool has_text() const override { return false; }
  int num_pieces() const override { return vocab_size_; }
  // Returns FAILED_PRECONDITION.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              Place place) const override;
  std::string Piece(int32_t, Place) const override { return {}; }

 private:
  const int vocab_size_;
};

}  // namespace flash

#endif  // SERVER_TOKENIZER_NO_TOKENIZER_H_
