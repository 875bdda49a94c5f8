#include "server/sessions/prefix_cache.h"

#include <bit>

#include "kernels/check.h"
#include "server/sessions/sha256.h"

namespace flash {

PrefixCache::PrefixCache(Options options)
    : options_(std::move(options)), passed_(options_.remembered_boundaries) {
  stats_.max_bytes = options_.max_bytes;
}

PrefixKey PrefixCache::KeyOfNothing(std::string_view owner) const {
  const bool is_shared = options_.sharing == Sharing::kAmongAll;
  // The parts have a fixed size but for the last. No chunk's key is made of
  // bytes that begin like these: they would have to be a digest.
  const Sha256Digest fingerprint = Sha256({options_.fingerprint});
  const std::array<int64_t, 2> numbers = {options_.chunk_size, is_shared};
  return Sha256({"flash-server: a prefix, version 1", BytesOf(fingerprint),
                 BytesOf(numbers), is_shared ? "" : owner});
}

PrefixKey PrefixCache::KeyAfter(const PrefixKey& before,
                                std::span<const int32_t> chunk) const {
  FLASH_CHECK(static_cast<int>(chunk.size()) == options_.chunk_size);
  return Sha256({BytesOf(before), BytesOf(chunk)});
}

std::optional<PrefixStates::Found> PrefixCache::Find(
    std::span<const PrefixKey> keys) {
  if (keys.empty()) return std::nullopt;
  MutexLock lock(&mutex_);
  const size_t num_passed = passed_.Pass(keys);
  Entry* const deepest = Deepest(keys);
  const size_t num_found = deepest == nullptr ? 0 : deepest->num_chunks;
  // Where this prompt and an earlier one part. (The whole prompt's state is
  // kept in any case.)
  if (num_passed > num_found && num_passed < keys.size()) {
    passed_.Want(keys[num_passed - 1]);
  }
  if (deepest == nullptr) {
    ++(num_passed == 0 ? stats_.new_misses : stats_.lost_misses);
    return std::nullopt;
  }
  Use(*deepest, keys.first(num_found));
  deepest->was_hit = true;
  ++stats_.hits;
  stats_.hit_tokens += deepest->num_chunks * options_.chunk_size;
  return Found{.num_chunks = num_found, .state = deepest->state};
}

bool PrefixCache::Wants(std::span<const PrefixKey> keys, size_t num_chunks) {
  const PrefixKey& key = keys[num_chunks - 1];
  MutexLock lock(&mutex_);
  const bool may_be_used = num_chunks == keys.size() ||
                           std::has_single_bit(num_chunks) ||
                           passed_.IsWanted(key);
  if (!may_be_used || options_.max_bytes == 0 || entries_.contains(key)) {
    return false;
  }
  if (stats_.bytes + last_bytes_ <= options_.max_bytes) return true;
  const int64_t worth =
      clock_ + Cost(num_chunks, Deepest(keys.first(num_chunks - 1)));
  if (by_worth_.empty() || worth >= by_worth_.begin()->first.first) return true;
  // It would be the next to go: it goes before it is made.
  clock_ = worth;
  ++stats_.worthless;
  return false;
}

std::vector<std::shared_ptr<const std::string>> PrefixCache::Put(
    std::span<const PrefixKey> keys, size_t num_chunks,
    std::shared_ptr<const std::string> state) {
  const std::span<const PrefixKey> before = keys.first(num_chunks);
  const int64_t bytes = SizeOf(*state);
  std::vector<std::shared_ptr<const std::string>> evicted;
  MutexLock lock(&mutex_);
  if (bytes > options_.max_bytes) {
    ++stats_.too_large;
    return evicted;
  }
  const auto [place, is_new] = entries_.try_emplace(before.back());
  Entry& entry = place->second;
  if (!is_new) {
    Use(entry, before);
    return evicted;
  }
  while (stats_.bytes + bytes > options_.max_bytes) evicted.push_back(Evict());
  entry.key = before.back();
  entry.state = std::move(state);
  entry.num_chunks = static_cast<int64_t>(num_chunks);
  Use(entry, before);
  stats_.bytes += bytes;
  last_bytes_ = bytes;
  ++stats_.puts;
  return evicted;
}

PrefixCache::Stats PrefixCache::stats() const {
  MutexLock lock(&mutex_);
  Stats stats = stats_;
  stats.states = static_cast<int64_t>(entries_.size());
  return stats;
}

int64_t PrefixCache::SizeOf(const std::string& state) {
  constexpr int64_t kOfEntry = 512;  // with its places in the maps, roughly
  return static_cast<int64_t>(state.size()) + kOfEntry;
}

int64_t PrefixCache::Cost(int64_t num_chunks, const Entry* before) {
  return num_chunks - (before == nullptr ? 0 : before->num_chunks);
}

PrefixCache::Entry* PrefixCache::Deepest(std::span<const PrefixKey> keys) {
  for (; !keys.empty(); keys = keys.first(keys.size() - 1)) {
    const auto entry = entries_.find(keys.back());
    if (entry != entries_.end()) return &entry->second;
  }
  return nullptr;
}

void PrefixCache::Use(Entry& entry, std::span<const PrefixKey> keys) {
  SetBefore(entry, Deepest(keys.first(keys.size() - 1)));
  entry.used_at = clock_;
  SetWorth(entry, ++num_uses_);
}

void PrefixCache::SetBefore(Entry& entry, Entry* before) {
  if (before == entry.before) return;
  if (entry.before != nullptr) std::erase(entry.before->after, &entry);
  if (before != nullptr) before->after.push_back(&entry);
  entry.before = before;
}

void PrefixCache::SetWorth(Entry& entry, int64_t use) {
  by_worth_.erase(entry.worth);
  entry.worth = {entry.used_at + Cost(entry.num_chunks, entry.before), use};
  by_worth_.emplace(entry.worth, &entry);
}

std::shared_ptr<const std::string> PrefixCache::Evict() {
  Entry& entry = *by_worth_.begin()->second;
  clock_ = entry.worth.first;
  by_worth_.erase(entry.worth);
  // Those that went on from here would go on from the one before.
  for (Entry* const after : std::vector<Entry*>(entry.after)) {
    SetBefore(*after, entry.before);
    SetWorth(*after, after->worth.second);
  }
  SetBefore(entry, nullptr);
  std::shared_ptr<const std::string> state = std::move(entry.state);
  stats_.bytes -= SizeOf(*state);
  ++(entry.was_hit ? stats_.used_evictions : stats_.unused_evictions);
  entries_.erase(entry.key);
  return state;
}

}  // namespace flash
