#include "server/service/text_workers.h"

#include <utility>

namespace flash {

TextWorkers::TextWorkers(int num_threads, size_t max_waiting)
    : max_waiting_(max_waiting) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Loop(); });
  }
}

TextWorkers::~TextWorkers() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  for (auto& thread : threads_) thread.join();
}

bool TextWorkers::TryRun(std::function<void()> work) {
  {
    MutexLock lock(&mutex_);
    if (waiting_.size() >= max_waiting_) return false;
    waiting_.push_back(std::move(work));
  }
  changed_.NotifyOne();
  return true;
}

void TextWorkers::Loop() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !ending_) changed_.Wait(&mutex_);
      if (waiting_.empty()) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace flash
