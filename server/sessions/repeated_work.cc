#include "server/sessions/repeated_work.h"

#include <chrono>
#include <utility>

namespace flash {

RepeatedWork::RepeatedWork(absl::Duration period, std::function<void()> work)
    : period_(period), work_(std::move(work)), thread_([this] { Repeat(); }) {}

RepeatedWork::~RepeatedWork() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stopped_.NotifyAll();
  }
  thread_.join();
}

void RepeatedWork::Repeat() {
  for (;;) {
    const auto next =
        std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(period_);
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && std::chrono::steady_clock::now() < next) {
        stopped_.WaitUntil(&mutex_, next);
      }
      if (stopping_) return;
    }
    work_();
  }
}

}  // namespace flash
