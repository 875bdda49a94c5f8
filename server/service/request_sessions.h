// The sessions of one request: the one that it goes on from, and those that it
// is saved to.

#ifndef SERVER_SERVICE_REQUEST_SESSIONS_H_
#define SERVER_SERVICE_REQUEST_SESSIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/mutex.h"
#include "server/scheduler/snapshot.h"
#include "server/sessions/sessions.h"

namespace flash {

// What a request says of sessions, checked.
struct SessionUse {
  std::string id;          // of the one that it goes on from; empty: none
  bool unchanged = false;  // it stays as it is, and is not claimed
  std::optional<int64_t> takeover_epoch;
  bool save = false;
  // Neither prompt nor seed: the session's own random numbers go on.
  bool keeps_seed = false;
};

// A claim is held from Open() to Save() or Release(), one of which has to be
// called after it. All functions wait for the store. Their errors have the
// details of errors.h.
//
// Thread safety: Open() before, Release() after the others; Save() on several
// threads at once.
class RequestSessions {
 public:
  // `sessions` is borrowed.
  RequestSessions(Sessions* sessions, SessionUse use, std::string owner,
                  std::string request_id);

  const SessionUse& use() const { return use_; }

  // The text to go on from; null if there is none.
  absl::StatusOr<std::shared_ptr<const Snapshot>> Open();

  // Of the claim, if there is one; else 0.
  int64_t epoch() const { return epoch_; }

  // Keeps an output's text: in the session that is claimed, or in a new one.
  absl::StatusOr<SessionInfo> Save(std::shared_ptr<const Snapshot> snapshot);

  // Whether Release() has something to do.
  bool HoldsClaim() const;
  // Gives up a claim that is still held: the session stays as it was.
  void Release();

 private:
  Sessions& sessions_;
  const SessionUse use_;
  const std::string owner_;
  const std::string request_id_;
  int64_t epoch_ = 0;

  mutable Mutex mutex_;
  std::optional<SessionClaim> claim_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flash

#endif  // SERVER_SERVICE_REQUEST_SESSIONS_H_
