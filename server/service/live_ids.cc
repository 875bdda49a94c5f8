#include "server/service/live_ids.h"

#include "server/service/errors.h"

namespace flash {

absl::StatusOr<LiveIds::Lease> LiveIds::Claim(const std::string& owner,
                                              const std::string& id) {
  MutexLock lock(&mutex_);
  if (!ids_.emplace(owner, id).second) return RequestIdInUse(id);
  return Lease(this, {owner, id});
}

int64_t LiveIds::size() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(ids_.size());
}

void LiveIds::Lease::Release() {
  if (ids_ == nullptr) return;
  MutexLock lock(&ids_->mutex_);
  ids_->ids_.erase(id_);
  ids_ = nullptr;
}

}  // namespace flash
