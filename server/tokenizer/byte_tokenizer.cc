#include "server/tokenizer/byte_tokenizer.h"

namespace flash {

absl::StatusOr<std::vector<int32_t>> ByteTokenizer::Encode(
    std::string_view text, Place) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string ByteTokenizer::Piece(int32_t id, Place) const {
  if (id < 0 || id > 255) return {};
  return std::string(1, static_cast<char>(id));
}

}  // namespace flash
