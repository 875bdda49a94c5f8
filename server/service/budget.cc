#include "server/service/budget.h"

#include "server/service/errors.h"

namespace flash {

absl::StatusOr<Budget::Share> Budget::Take(int64_t amount) {
  MutexLock lock(&mutex_);
  if (taken_ > 0 && taken_ + amount > most_) return QueueFull(when_full_);
  taken_ += amount;
  return Share(this, [amount](void* budget) {
    auto* self = static_cast<Budget*>(budget);
    MutexLock lock(&self->mutex_);
    self->taken_ -= amount;
  });
}

}  // namespace flash
