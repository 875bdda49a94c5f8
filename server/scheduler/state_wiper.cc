#include "server/scheduler/state_wiper.h"

#include <utility>

namespace flash {

StateWiper::StateWiper() : thread_([this] { Loop(); }) {}

StateWiper::~StateWiper() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
  }
  changed_.NotifyOne();
  thread_.join();
}

void StateWiper::Drop(std::shared_ptr<const void> state) {
  if (state == nullptr) return;
  // Where there is no room it goes with this call, after the lock.
  MutexLock lock(&mutex_);
  if (waiting_.size() >= kMaxWaiting) return;
  waiting_.push_back(std::move(state));
  changed_.NotifyOne();
}

void StateWiper::Loop() {
  for (;;) {
    std::shared_ptr<const void> state;  // goes without the lock
    MutexLock lock(&mutex_);
    while (waiting_.empty() && !ending_) changed_.Wait(&mutex_);
    if (waiting_.empty()) return;
    state = std::move(waiting_.front());
    waiting_.pop_front();
  }
}

}  // namespace flash
