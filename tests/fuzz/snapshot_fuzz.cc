// Whatever bytes a client imports as a session, or a store gives back: they are
// a whole snapshot or a status, and what is read is written again as it was.
//
// The checksum is no obstacle: bytes that lack the right one are tried with it,
// too.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/check.h"
#include "server/model/digest.h"
#include "server/sessions/snapshot_codec.h"

namespace flash {
namespace {

constexpr int64_t kMaxStateBytes = int64_t{16} << 20;

const SnapshotCodec& Codec(SnapshotCompression compression) {
  static const Fingerprint fingerprint = {"m", "t", "s", "n"};
  static const SnapshotCodec plain(fingerprint, SnapshotCompression::kNone,
                                   {.max_state_bytes = kMaxStateBytes});
  static const SnapshotCodec small(fingerprint, SnapshotCompression::kZstd,
                                   {.max_state_bytes = kMaxStateBytes});
  return compression == SnapshotCompression::kNone ? plain : small;
}

void CheckWhole(const Snapshot& snapshot) {
  FLASH_CHECK(snapshot.position >= 0);
  FLASH_CHECK((snapshot.state == nullptr) == (snapshot.position == 0));
  FLASH_CHECK(snapshot.state == nullptr ||
              (!snapshot.state->empty() &&
               snapshot.state->size() <= size_t{kMaxStateBytes}));
  FLASH_CHECK(snapshot.num_tokens() >= snapshot.position);
  FLASH_CHECK(static_cast<int64_t>(snapshot.recent.size()) <=
              snapshot.num_tokens());
  for (const int32_t id : snapshot.pending) FLASH_CHECK(id >= 0);
  for (const RecentToken& token : snapshot.recent) FLASH_CHECK(token.id >= 0);
  FLASH_CHECK(snapshot.incomplete.size() <= 3);
}

bool AreEqual(const Snapshot& a, const Snapshot& b) {
  return a.position == b.position &&
         (a.state == nullptr ? b.state == nullptr : *a.state == *b.state) &&
         a.pending == b.pending && a.recent == b.recent && a.place == b.place &&
         a.incomplete == b.incomplete && a.held == b.held && a.seed == b.seed &&
         a.output_index == b.output_index;
}

void Try(std::string_view bytes) {
  const auto read = Codec(SnapshotCompression::kNone).Decode(bytes);
  if (!read.ok()) {
    FLASH_CHECK(absl::IsDataLoss(read.status()) ||
                absl::IsFailedPrecondition(read.status()));
    FLASH_CHECK(read.status().message().size() < 10000);
    return;
  }
  CheckWhole(**read);
  for (const SnapshotCompression compression :
       {SnapshotCompression::kNone, SnapshotCompression::kZstd}) {
    const SnapshotCodec& codec = Codec(compression);
    const auto again = codec.Decode(codec.Encode(**read));
    FLASH_CHECK(again.ok() && AreEqual(**read, **again));
  }
}

}  // namespace
}  // namespace flash

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  flash::Try(bytes);
  std::string sealed(
      bytes.substr(0, size - std::min(size, flash::kDigestBytes)));
  sealed += flash::DigestOf(sealed);
  flash::Try(sealed);
  return 0;
}
