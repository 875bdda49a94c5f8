// The ids of the requests that are live: each names one request of an owner at
// a time.

#ifndef SERVER_SERVICE_LIVE_IDS_H_
#define SERVER_SERVICE_LIVE_IDS_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/mutex.h"

namespace flash {

// Thread safety: every function may be called from any thread.
class LiveIds {
 private:
  using OwnedId = std::pair<std::string, std::string>;  // owner, id

 public:
  // A claim on an id; given back when destroyed or assigned to. Movable. Must
  // not outlive its LiveIds.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : ids_(std::exchange(other.ids_, nullptr)), id_(std::move(other.id_)) {}
    Lease& operator=(Lease&& other) noexcept {
      Release();
      ids_ = std::exchange(other.ids_, nullptr);
      id_ = std::move(other.id_);
      return *this;
    }
    ~Lease() { Release(); }

   private:
    friend class LiveIds;
    Lease(LiveIds* ids, OwnedId id) : ids_(ids), id_(std::move(id)) {}
    void Release();

    LiveIds* ids_ = nullptr;
    OwnedId id_;
  };

  // ALREADY_EXISTS if a live request of `owner` has this id.
  absl::StatusOr<Lease> Claim(const std::string& owner, const std::string& id);

  int64_t size() const;

 private:
  mutable Mutex mutex_;
  std::set<OwnedId> ids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flash

#endif  // SERVER_SERVICE_LIVE_IDS_H_
