// The ids of the requests that are live: each names one request at a time.

#ifndef SERVER_SERVICE_LIVE_IDS_H_
#define SERVER_SERVICE_LIVE_IDS_H_

#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/mutex.h"

namespace flash {

// Thread safety: every function may be called from any thread.
class LiveIds {
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
    Lease(LiveIds* ids, std::string id) : ids_(ids), id_(std::move(id)) {}
    void Release();

    LiveIds* ids_ = nullptr;
    std::string id_;
  };

  // ALREADY_EXISTS if a live request has this id.
  absl::StatusOr<Lease> Claim(const std::string& id);

  int64_t size() const;

 private:
  mutable Mutex mutex_;
  std::unordered_set<std::string> ids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flash

#endif  // SERVER_SERVICE_LIVE_IDS_H_
