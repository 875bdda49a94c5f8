// What a snapshot must be for anybody to go on with it.

#ifndef SERVER_SCHEDULER_SNAPSHOT_CHECK_H_
#define SERVER_SCHEDULER_SNAPSHOT_CHECK_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "server/scheduler/snapshot.h"

namespace flash {

// Far above what a scheduler holds back.
inline constexpr size_t kMaxHeldBytes = size_t{64} << 10;

// OK if the snapshot's parts agree with each other and are within their bounds,
// and every id is below `num_ids`; else INVALID_ARGUMENT, with what is wrong,
// as "its position is -1". (The state's own form is LanguageModel's to check.)
// Takes time in proportion to the tokens. Pure; any thread.
absl::Status CheckSnapshot(const Snapshot& snapshot, int64_t num_ids);

}  // namespace flash

#endif  // SERVER_SCHEDULER_SNAPSHOT_CHECK_H_
