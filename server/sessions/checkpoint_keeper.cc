#include "server/sessions/checkpoint_keeper.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/sessions/sha256.h"

namespace flash {
namespace {

constexpr int kKept = 2;  // of each request

constexpr std::string_view kMagic("FLASHCKP\1\0\0\0", 12);  // and the version
constexpr size_t kHeadBytes =
    kMagic.size() + sizeof(PrefixKey) + sizeof(Sha256Digest);

// In hexadecimal: half a digest is still beyond anybody's reach.
std::string ShortHash(const std::string& text) {
  const Sha256Digest digest = Sha256({text});
  return absl::BytesToHexString(std::string(digest.begin(), &digest[16]));
}

// Of the request's blobs, but for the end.
std::string NameOf(const std::string& owner, const std::string& request_id) {
  return absl::StrCat("checkpoints-", ShortHash(owner), "/",
                      ShortHash(request_id), "-");
}

std::string HeadOf(const PrefixKey& key, std::string_view state) {
  std::string head(kMagic);
  head += BytesOf(key);
  head += BytesOf(Sha256({BytesOf(key), state}));
  return head;
}

// Which of `keys` the head is about, from 1; 0: none.
size_t NumChunks(std::string_view head, std::span<const PrefixKey> keys) {
  if (head.size() != kHeadBytes || !head.starts_with(kMagic)) return 0;
  PrefixKey key;
  std::memcpy(key.data(), head.data() + kMagic.size(), key.size());
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? 0 : found - keys.begin() + 1;
}

}  // namespace

CheckpointKeeper::CheckpointKeeper(Options options, BlobStore* store)
    : options_(std::move(options)),
      store_(*store),
      thread_([this] { Loop(); }) {}

CheckpointKeeper::~CheckpointKeeper() {
  {
    MutexLock lock(&mutex_);
    end_at_ = Clock::now() + options_.last_writes;
  }
  changed_.NotifyAll();
  thread_.join();
}

std::shared_ptr<const std::string> CheckpointKeeper::Put(
    const Request& request, const PrefixKey& key, int64_t /*position*/,
    std::shared_ptr<const std::string> state) {
  Work work{.name = NameOf(request.owner, request.id),
            .checkpoint = Checkpoint{key, std::move(state)}};
  MutexLock lock(&mutex_);
  // Those that nobody drops were cut off. To forget where a running one stands
  // may cost its last checkpoint but one.
  if (num_put_.size() >= options_.max_waiting) num_put_.clear();
  const auto num_put = num_put_.try_emplace(work.name, 0).first;
  work.number = num_put->second;
  if (!Enqueue(work)) {
    ++stats_.dropped;
  } else if (work.checkpoint.has_value()) {
    ++stats_.replaced;
  } else {
    ++num_put->second;
  }
  return work.checkpoint ? std::move(work.checkpoint->state) : nullptr;
}

void CheckpointKeeper::Drop(const Request& request) {
  Work work{.name = NameOf(request.owner, request.id),
            .checkpoint = std::nullopt};
  MutexLock lock(&mutex_);
  num_put_.erase(work.name);
  Enqueue(work);  // if there is no room they go when they expire
}

bool CheckpointKeeper::Enqueue(Work& work) {
  const auto waiting = waiting_.find(work.name);
  if (waiting == waiting_.end()) {
    const bool fits =
        waiting_.size() < options_.max_waiting &&
        stats_.waiting_bytes + work.bytes() <= options_.max_waiting_bytes;
    if (!fits && !waiting_.empty()) return false;
    stats_.waiting_bytes += work.bytes();
    order_.push_back(work.name);
    std::swap(waiting_[work.name], work);
  } else {
    stats_.waiting_bytes += work.bytes() - waiting->second.bytes();
    if (waiting->second.checkpoint) work.number = waiting->second.number;
    std::swap(waiting->second, work);
  }
  changed_.NotifyOne();
  return true;
}

std::optional<CheckpointKeeper::Work> CheckpointKeeper::Next() {
  MutexLock lock(&mutex_);
  while (order_.empty() && !end_at_.has_value()) changed_.Wait(&mutex_);
  if (order_.empty()) return std::nullopt;
  if (end_at_.has_value() && Clock::now() >= *end_at_) return std::nullopt;
  const auto waiting = waiting_.find(order_.front());
  Work work = std::move(waiting->second);
  order_.pop_front();
  waiting_.erase(waiting);
  return work;
}

void CheckpointKeeper::Loop() {
  while (const std::optional<Work> work = Next()) {
    Count(*work, work->checkpoint ? Write(*work) : Delete(work->name));
  }
}

absl::Status CheckpointKeeper::Write(const Work& work) {
  const auto& [key, state] = *work.checkpoint;
  return store_
      .Put(absl::StrCat(work.name, work.number % kKept),
           {.head = HeadOf(key, *state), .body = state}, std::nullopt,
           options_.now() + options_.time_to_live)
      .status();
}

absl::Status CheckpointKeeper::Delete(const std::string& name) {
  absl::Status first_failure;
  for (int i = 0; i < kKept; ++i) {
    const absl::Status status =
        store_.Delete(absl::StrCat(name, i), std::nullopt);
    if (!absl::IsNotFound(status)) first_failure.Update(status);
  }
  return first_failure;
}

void CheckpointKeeper::Count(const Work& work, const absl::Status& status) {
  bool tell = false;
  {
    MutexLock lock(&mutex_);
    stats_.waiting_bytes -= work.bytes();
    if (!status.ok()) {
      ++stats_.failed;
    } else {
      ++(work.checkpoint ? stats_.written : stats_.deleted);
    }
    tell = store_works_ && !status.ok() && options_.on_failure != nullptr;
    store_works_ = status.ok();
  }
  if (tell) options_.on_failure(status);
}

absl::StatusOr<CheckpointKeeper::Recalled> CheckpointKeeper::Recall(
    const std::string& owner, const std::string& request_id,
    std::span<const PrefixKey> keys) {
  const std::string name = NameOf(owner, request_id);
  // Heads first: bodies are large, and one will do.
  std::vector<std::pair<size_t, std::string>> candidates;
  absl::Status failure;
  for (int i = 0; i < kKept; ++i) {
    std::string blob = absl::StrCat(name, i);
    const auto head = store_.GetHead(blob);
    if (!head.ok()) {
      if (!absl::IsNotFound(head.status())) failure.Update(head.status());
    } else if (const size_t num_chunks = NumChunks(head->head, keys)) {
      candidates.emplace_back(num_chunks, std::move(blob));
    }
  }
  std::sort(candidates.rbegin(), candidates.rend());
  for (const auto& [num_chunks, blob] : candidates) {
    auto recalled = Read(blob, keys);
    if (recalled.ok()) {
      MutexLock lock(&mutex_);
      ++stats_.recalled;
      return recalled;
    }
    if (!absl::IsNotFound(recalled.status())) failure.Update(recalled.status());
  }
  MutexLock lock(&mutex_);
  ++(failure.ok() ? stats_.recall_misses : stats_.recall_failures);
  if (!failure.ok()) return failure;
  return absl::NotFoundError(absl::StrCat(
      "there is no checkpoint of this text of request \"", request_id, "\""));
}

absl::StatusOr<CheckpointKeeper::Recalled> CheckpointKeeper::Read(
    const std::string& name, std::span<const PrefixKey> keys) {
  auto found = store_.Get(name);
  if (!found.ok()) return found.status();
  const Blob& blob = found->blob;
  const size_t num_chunks = NumChunks(blob.head, keys);
  if (num_chunks == 0) {
    return absl::NotFoundError("it has been replaced in the meantime");
  }
  if (blob.head != HeadOf(keys[num_chunks - 1], *blob.body)) {
    return absl::DataLossError(
        absl::StrCat(store_.Describe(), " holds a damaged checkpoint: ", name));
  }
  return Recalled{.num_chunks = num_chunks, .state = blob.body};
}

CheckpointKeeper::Stats CheckpointKeeper::stats() const {
  MutexLock lock(&mutex_);
  Stats stats = stats_;
  stats.waiting = static_cast<int64_t>(waiting_.size());
  return stats;
}

}  // namespace flash
