// Who works on which session: one request at a time, of any server.

#ifndef SERVER_SESSIONS_SESSION_CLAIMS_H_
#define SERVER_SESSIONS_SESSION_CLAIMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"
#include "server/scheduler/snapshot.h"
#include "server/sessions/earlier_texts.h"
#include "server/sessions/repeated_work.h"
#include "server/sessions/session_table.h"

namespace flash {

// A session that one request works on: until Commit() or Release(), or until
// its lease ends because this server does not renew it, no other request of any
// server does.
struct SessionClaim {
  std::string owner;
  std::string id;
  std::string request_id;
  int64_t epoch = 0;
  std::shared_ptr<const Snapshot> snapshot = nullptr;  // the text to go on from
  bool repeats = false;  // it is to write the answer that is there once more
};

// In place of an epoch: whichever the request has had before, if any.
inline constexpr int64_t kAnyEpoch = 0;

// "Request R on server S holds the session."
absl::Status SessionInUse(const std::string& id,
                          const SessionHead::Lease& lease);

// A claim has an epoch, which stands in the session's head with its lease: the
// head's version decides between two that come at once.
//
// A session that has been written keeps what it was before for a while
// (EarlierTexts). If the end of that answer was lost on its way, the same
// request takes the session over by an epoch that it had, however often, goes
// on from the earlier text, and writes the same answer once more. So its id has
// to be its own.
//
// Errors of every function, besides those that are named: SessionTable's.
// Thread safety: every function may be called from any thread. They wait for
// the store.
class SessionClaims {
 public:
  struct Options {
    // How long a claim outlives a server that has died. Renewed in time by the
    // servers that have not. Positive.
    absl::Duration lease = absl::Seconds(15);
    std::string server_id;  // in messages: who holds a session
  };

  // `table` and `earlier` are borrowed. Starts the thread that renews claims.
  SessionClaims(Options options, SessionTable* table, EarlierTexts* earlier);

  // NOT_FOUND. ABORTED if another request holds it, which the message names,
  // unless `takeover_epoch` is that claim's: then it is lost to this one.
  // kAnyEpoch: that of `request_id`, if it has one.
  // FAILED_PRECONDITION if that claim, or a later one, has written the session,
  // unless that was `request_id` itself, and the earlier text is still there.
  absl::StatusOr<SessionClaim> Claim(const std::string& owner,
                                     const std::string& id,
                                     const std::string& request_id,
                                     std::optional<int64_t> takeover_epoch);
  // The session is `snapshot` from now on; returns it. ABORTED if the claim was
  // lost. After another error it may be tried again until the lease ends, which
  // is renewed no more.
  absl::StatusOr<SessionTable::Stored> Commit(
      const SessionClaim& claim, std::shared_ptr<const Snapshot> snapshot);
  // The session stays as it was. (Nothing can be done about a failure: the
  // lease ends by itself.)
  void Release(const SessionClaim& claim);

  struct Stats {
    int64_t committed = 0;
    int64_t repeated = 0;  // claims that went on from an earlier text
    int64_t lost = 0;
  };
  Stats stats() const;

 private:
  // A claim of this server's, which is renewed.
  struct Held {
    std::string owner;
    std::string id;
    int64_t epoch = 0;
  };

  // Sets `earlier` if `claim` is to write the answer that is there once more.
  // FAILED_PRECONDITION if it would go on behind it.
  absl::Status CheckTakeover(const SessionClaim& claim,
                             std::optional<int64_t> takeover_epoch,
                             const SessionHead& head,
                             std::shared_ptr<const Snapshot>& earlier);
  // Keeps what `claim` is about to replace, and reads the head that it does.
  // ABORTED if the claim was lost.
  absl::StatusOr<SessionTable::Stored> BeginCommit(const SessionClaim& claim);

  void StartHolding(const Held& held);
  // Stops renewing a claim. False if it was not renewed any more.
  bool StopHolding(const Held& held);
  void Renew(const Held& held);
  void RenewAll();

  const Options options_;
  SessionTable& table_;
  EarlierTexts& earlier_;

  mutable Mutex mutex_;
  // By the session's id: one request of this server at most holds it.
  std::map<std::string, Held> held_ ABSL_GUARDED_BY(mutex_);
  Stats stats_ ABSL_GUARDED_BY(mutex_);

  RepeatedWork renewal_;  // the last member: it uses the others
};

}  // namespace flash

#endif  // SERVER_SESSIONS_SESSION_CLAIMS_H_
