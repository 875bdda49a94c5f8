#include "server/service/linger.h"

#include <chrono>
#include <utility>

namespace flash {

void Linger::Start() {
  MutexLock lock(&mutex_);
  if (!stopped_ && alarm_ == nullptr) SetAlarm();
}

void Linger::Pause() {
  std::unique_ptr<grpc::Alarm> alarm;  // destroyed outside of the lock
  MutexLock lock(&mutex_);
  alarm = std::move(alarm_);
}

void Linger::OnProgress() {
  MutexLock lock(&mutex_);
  ++progress_;
}

void Linger::Stop() {
  std::unique_ptr<grpc::Alarm> alarm;  // destroyed outside of the lock
  MutexLock lock(&mutex_);
  stopped_ = true;
  alarm = std::move(alarm_);
}

void Linger::SetAlarm() {
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(
      std::chrono::system_clock::now() +
          std::chrono::duration_cast<std::chrono::system_clock::duration>(
              patience_),
      [self = shared_from_this(), then = progress_](bool fired) {
        if (fired) self->OnAlarm(then);
      });
}

void Linger::OnAlarm(int64_t progress_then) {
  std::unique_ptr<grpc::Alarm> spent;  // destroyed outside of the lock
  MutexLock lock(&mutex_);
  if (stopped_ || alarm_ == nullptr) return;
  if (progress_ == progress_then) {
    on_idle_();
  } else {
    spent = std::move(alarm_);
    SetAlarm();
  }
}

}  // namespace flash
