// Decoded snapshots that may be asked for again.

#ifndef SERVER_SESSIONS_SNAPSHOT_CACHE_H_
#define SERVER_SESSIONS_SNAPSHOT_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"
#include "server/scheduler/snapshot.h"

namespace flash {

// Snapshots by name, of at most so many bytes; the least recently used one goes
// first.
//
// Thread safety: every function may be called from any thread.
class SnapshotCache {
 public:
  explicit SnapshotCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  enum class Use {
    kAgain,
    // It is going to be replaced, and is asked for again only by its forks: it
    // goes first from now on.
    kLast,
  };
  // Null if it is not here.
  std::shared_ptr<const Snapshot> Get(std::string_view name, Use use);

  void Put(std::string_view name, std::shared_ptr<const Snapshot> snapshot);
  void Drop(std::string_view name);

  struct Stats {
    int64_t snapshots = 0;
    int64_t bytes = 0;
    int64_t hits = 0;
    int64_t misses = 0;
  };
  Stats stats() const;

 private:
  struct Entry {
    std::string name;
    std::shared_ptr<const Snapshot> snapshot;
    int64_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  // Moves what `max_bytes_` has no room for to `dropped`: the caller destroys
  // it without the lock, since states are wiped as they go.
  void MakeRoom(Entries& dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(Entries::iterator entry, Entries& dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t max_bytes_;

  mutable Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // the front one goes first
  // By the names in entries_, which do not move.
  std::unordered_map<std::string_view, Entries::iterator> by_name_
      ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace flash

#endif  // SERVER_SESSIONS_SNAPSHOT_CACHE_H_
