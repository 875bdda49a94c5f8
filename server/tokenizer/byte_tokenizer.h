// Ids 0-255 are bytes. Works with any text, and with bytes that are none.

#ifndef SERVER_TOKENIZER_BYTE_TOKENIZER_H_
#define SERVER_TOKENIZER_BYTE_TOKENIZER_H_

#include "server/tokenizer/tokenizer.h"

namespace flash {

// Thread safety: immutable; any thread.
class ByteTokenizer final : public Tokenizer {
 public:
  bool has_text() const override { return true; }
  int num_pieces() const override { return 256; }
  // Never fails: bytes that are no UTF-8 are bytes all the same.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              Place place) const override;
  std::string Piece(int32_t id, Place place) const override;
};

}  // namespace flash

#endif  // SERVER_TOKENIZER_BYTE_TOKENIZER_H_
