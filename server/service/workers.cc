#include "server/service/workers.h"

#include <utility>

#include "server/service/errors.h"

namespace flash {

Workers::Workers(int num_threads, Room room) : room_(std::move(room)) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Loop(); });
  }
}

Workers::~Workers() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  for (auto& thread : threads_) thread.join();
}

absl::Status Workers::TryRun(size_t num_bytes, std::function<void()> work) {
  {
    MutexLock lock(&mutex_);
    const bool fits = waiting_.size() < room_.tasks &&
                      waiting_bytes_ + num_bytes <= room_.bytes;
    if (!fits && !waiting_.empty()) return QueueFull(room_.when_full);
    waiting_bytes_ += num_bytes;
    waiting_.push_back({num_bytes, std::move(work)});
  }
  changed_.NotifyOne();
  return absl::OkStatus();
}

void Workers::Run(std::function<void()> work) {
  {
    MutexLock lock(&mutex_);
    waiting_.push_back({0, std::move(work)});
  }
  changed_.NotifyOne();
}

void Workers::Loop() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !ending_) changed_.Wait(&mutex_);
      if (waiting_.empty()) return;
      work = std::move(waiting_.front().work);
      waiting_bytes_ -= waiting_.front().num_bytes;
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace flash
