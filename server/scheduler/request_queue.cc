#include "server/scheduler/request_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace flash {

int64_t NumTokens(const Request& request) {
  int64_t num_tokens = static_cast<int64_t>(request.prompt.size());
  for (const std::vector<int32_t>& ids : request.prior_output_ids) {
    num_tokens += static_cast<int64_t>(ids.size());
  }
  if (request.start != nullptr) {
    num_tokens += static_cast<int64_t>(request.start->pending.size());
  }
  return num_tokens;
}

RequestQueue::RequestQueue(int64_t max_requests, int64_t max_tokens)
    : max_requests_(max_requests), max_tokens_(max_tokens) {}

absl::Status RequestQueue::Push(std::unique_ptr<Request>& request,
                                Clock::time_point now,
                                std::vector<PrefixKey> prefix_keys) {
  FLASH_CHECK(request != nullptr);
  const int64_t num_tokens = NumTokens(*request);
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  if (static_cast<int64_t>(requests_.size()) >= max_requests_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full: ", requests_.size(),
                     " requests wait, max_queued_requests is ", max_requests_));
  }
  if (num_tokens > max_tokens_ - num_tokens_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the queue is full: ", num_tokens_, " tokens wait and ", num_tokens,
        " more would exceed max_queued_tokens, which is ", max_tokens_));
  }
  num_tokens_ += num_tokens;
  requests_.push_back({std::move(request), std::move(prefix_keys), now});
  return absl::OkStatus();
}

std::optional<QueuedRequest> RequestQueue::PopIf(const Predicate& fits) {
  MutexLock lock(&mutex_);
  if (requests_.empty() || !fits(requests_.front())) return std::nullopt;
  QueuedRequest first = std::move(requests_.front());
  requests_.pop_front();
  num_tokens_ -= NumTokens(*first.request);
  return first;
}

std::vector<QueuedRequest> RequestQueue::RemoveIf(const Predicate& leaves) {
  std::vector<QueuedRequest> removed;
  MutexLock lock(&mutex_);
  size_t kept = 0;  // those that stay close up, in place
  for (QueuedRequest& queued : requests_) {
    // Asked once: the answer may change at any moment.
    if (leaves(queued)) {
      num_tokens_ -= NumTokens(*queued.request);
      removed.push_back(std::move(queued));
    } else if (&requests_[kept++] != &queued) {
      requests_[kept - 1] = std::move(queued);
    }
  }
  requests_.resize(kept);
  return removed;
}

void RequestQueue::Close(absl::Status reason) {
  FLASH_CHECK(!reason.ok());
  MutexLock lock(&mutex_);
  if (closed_.ok()) closed_ = std::move(reason);
}

void RequestQueue::ForEach(
    const std::function<void(const QueuedRequest&)>& visit) const {
  MutexLock lock(&mutex_);
  for (const QueuedRequest& queued : requests_) visit(queued);
}

int64_t RequestQueue::num_requests() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(requests_.size());
}

int64_t RequestQueue::num_tokens() const {
  MutexLock lock(&mutex_);
  return num_tokens_;
}

bool RequestQueue::closed() const {
  MutexLock lock(&mutex_);
  return !closed_.ok();
}

}  // namespace flash
