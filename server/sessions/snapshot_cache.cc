#include "server/sessions/snapshot_cache.h"

namespace flash {
namespace {

int64_t BytesOf(const Snapshot& snapshot) {
  const size_t bytes =
      sizeof(Snapshot) +
      (snapshot.state == nullptr ? 0 : snapshot.state->size()) +
      snapshot.pending.size() * sizeof(int32_t) +
      snapshot.recent.size() * sizeof(RecentToken) + snapshot.held.size();
  return static_cast<int64_t>(bytes);
}

}  // namespace

std::shared_ptr<const Snapshot> SnapshotCache::Get(std::string_view name,
                                                   Use use) {
  MutexLock lock(&mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    ++misses_;
    return nullptr;
  }
  ++hits_;
  const auto place = use == Use::kLast ? entries_.begin() : entries_.end();
  entries_.splice(place, entries_, found->second);
  return found->second->snapshot;
}

void SnapshotCache::Put(std::string_view name,
                        std::shared_ptr<const Snapshot> snapshot) {
  const int64_t bytes = BytesOf(*snapshot);
  Entries dropped;
  MutexLock lock(&mutex_);
  if (bytes > max_bytes_ || by_name_.contains(name)) return;
  entries_.push_back({std::string(name), std::move(snapshot), bytes});
  by_name_.emplace(entries_.back().name, std::prev(entries_.end()));
  bytes_ += bytes;
  MakeRoom(dropped);
}

void SnapshotCache::Drop(std::string_view name) {
  Entries dropped;
  MutexLock lock(&mutex_);
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) Remove(found->second, dropped);
}

SnapshotCache::Stats SnapshotCache::stats() const {
  MutexLock lock(&mutex_);
  return {.snapshots = static_cast<int64_t>(entries_.size()),
          .bytes = bytes_,
          .hits = hits_,
          .misses = misses_};
}

void SnapshotCache::MakeRoom(Entries& dropped) {
  while (bytes_ > max_bytes_) Remove(entries_.begin(), dropped);
}

void SnapshotCache::Remove(Entries::iterator entry, Entries& dropped) {
  bytes_ -= entry->bytes;
  by_name_.erase(entry->name);
  dropped.splice(dropped.end(), entries_, entry);
}

}  // namespace flash
