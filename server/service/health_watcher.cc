#include "server/service/health_watcher.h"

#include <utility>

namespace flash {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(100);

}  // namespace

HealthWatcher::HealthWatcher(const Engine* engine, Clock::duration stale_after,
                             Report report)
    : engine_(*engine), stale_after_(stale_after), report_(std::move(report)) {
  {
    MutexLock lock(&mutex_);
    Update();
  }
  thread_ = std::thread([this] { Loop(); });
}

HealthWatcher::~HealthWatcher() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void HealthWatcher::Leave() {
  MutexLock lock(&mutex_);
  left_ = true;
  Update();
}

void HealthWatcher::Loop() {
  MutexLock lock(&mutex_);
  while (!ending_) {
    changed_.WaitUntil(&mutex_, Clock::now() + kPeriod);
    Update();
  }
}

HealthWatcher::Health HealthWatcher::Ask() const {
  if (left_ || !engine_.device_status().ok()) return Health::kNotServing;
  const EngineStats stats = engine_.stats();
  return !stats.draining && Clock::now() - stats.heartbeat < stale_after_
             ? Health::kServing
             : Health::kNotServing;
}

void HealthWatcher::Update() {
  const Health health = Ask();
  if (told_ == health) return;
  told_ = health;
  report_(health);
}

}  // namespace flash
