// The file that says what a blob in a directory is: its head, and which file is
// its body.
//
//   8 bytes  "FLASHBLB"
//   i64      version
//   i64      when it expires: microseconds since 1970, or the largest: never
//   u64      which body file is the blob's
//   i64      bytes of the body
//   u32      CRC-32 of the body
//   bytes    the head
//   u32      CRC-32 of everything before
// Numbers are little-endian.

#ifndef SERVER_SESSIONS_HEAD_FILE_H_
#define SERVER_SESSIONS_HEAD_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace flash {

struct HeadFile {
  int64_t version = 0;  // at least 1
  absl::Time expires;
  uint64_t body_id = 0;
  int64_t body_bytes = 0;
  uint32_t body_crc = 0;
  std::string head;

  std::string Encode() const;

  // Nothing, if `bytes` are damaged.
  static std::optional<HeadFile> Decode(std::string_view bytes);
};

uint32_t Crc32(std::string_view bytes);

}  // namespace flash

#endif  // SERVER_SESSIONS_HEAD_FILE_H_
