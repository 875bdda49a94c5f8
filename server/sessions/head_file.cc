#include "server/sessions/head_file.h"

#include <zlib.h>

#include <bit>
#include <cstring>
#include <limits>

namespace flash {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are written as they are in memory");

constexpr std::string_view kMagic = "FLASHBLB";
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

template <typename T>
void Append(T number, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Takes a number from the front of `bytes`. REQUIRES: it is there.
template <typename T>
T Take(std::string_view& bytes) {
  T number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes.remove_prefix(sizeof(number));
  return number;
}

constexpr size_t kBeforeHead = kMagic.size() + 4 * sizeof(int64_t) + 4;
constexpr size_t kAfterHead = sizeof(uint32_t);

}  // namespace

std::string HeadFile::Encode() const {
  std::string bytes(kMagic);
  Append(version, bytes);
  Append(
      expires == absl::InfiniteFuture() ? kNever : absl::ToUnixMicros(expires),
      bytes);
  Append(body_id, bytes);
  Append(body_bytes, bytes);
  Append(body_crc, bytes);
  bytes += head;
  Append(Crc32(bytes), bytes);
  return bytes;
}

std::optional<HeadFile> HeadFile::Decode(std::string_view bytes) {
  if (bytes.size() < kBeforeHead + kAfterHead) return std::nullopt;
  if (!bytes.starts_with(kMagic)) return std::nullopt;
  std::string_view checksum = bytes.substr(bytes.size() - kAfterHead);
  bytes.remove_suffix(kAfterHead);
  if (Take<uint32_t>(checksum) != Crc32(bytes)) return std::nullopt;
  bytes.remove_prefix(kMagic.size());
  HeadFile file;
  file.version = Take<int64_t>(bytes);
  const auto expires = Take<int64_t>(bytes);
  file.expires = expires == kNever ? absl::InfiniteFuture()
                                   : absl::FromUnixMicros(expires);
  file.body_id = Take<uint64_t>(bytes);
  file.body_bytes = Take<int64_t>(bytes);
  file.body_crc = Take<uint32_t>(bytes);
  file.head = bytes;
  if (file.version < 1 || file.body_bytes < 0) return std::nullopt;
  return file;
}

uint32_t Crc32(std::string_view bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace flash
