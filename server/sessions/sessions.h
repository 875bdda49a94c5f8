// The sessions: snapshots that are kept between requests, by name.

#ifndef SERVER_SESSIONS_SESSIONS_H_
#define SERVER_SESSIONS_SESSIONS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/scheduler/snapshot.h"
#include "server/sessions/blob_store.h"
#include "server/sessions/earlier_texts.h"
#include "server/sessions/repeated_work.h"
#include "server/sessions/session_claims.h"
#include "server/sessions/session_counts.h"
#include "server/sessions/session_head.h"
#include "server/sessions/session_limits.h"
#include "server/sessions/session_table.h"
#include "server/sessions/snapshot_codec.h"

namespace flash {

// What is told of a session.
struct SessionInfo {
  std::string id;
  int64_t num_tokens = 0;   // of its text
  int64_t num_pending = 0;  // of these, not in the state
  int64_t bytes = 0;        // as stored
  // Raised by every claim: whoever holds an older one has lost the session.
  int64_t epoch = 0;
  absl::Time created;
  absl::Time used;
  absl::Time expires;
  bool in_use = false;       // a request holds it
  std::string last_request;  // the id of the request that wrote it last
};

// Owners are whoever the service says they are; an id of another owner is
// NOT_FOUND, exactly as one that never was.
//
// In front of the store stands a cache of decoded snapshots of at most
// `cache_bytes`, the least recently used dropped first; what is in it is live
// again in the time of one copy.
//
// Errors of every function, besides those that are named: those of BlobStore
// and SnapshotCodec; ABORTED if others change the session without end. The
// messages name the session.
//
// Several servers may work on one store. Their clocks should agree to within a
// part of the lease: if they do not, claims end too early or too late, but a
// session is still written by one claim at most, the last one.
//
// Thread safety: every function may be called from any thread. They wait for
// the store.
class Sessions {
 public:
  struct Options {
    absl::Duration time_to_live = absl::Hours(24);  // since the last use
    absl::Duration max_time_to_live = absl::Seconds(kMaxTimeToLiveSeconds);
    // How long a claim outlives a server that has died. Renewed in time by the
    // servers that have not. Positive.
    absl::Duration lease = absl::Seconds(15);
    // How long a session that has been written keeps what it was before, for
    // an answer whose end was lost; longer than clients try again.
    absl::Duration keep_earlier = absl::Minutes(2);
    int64_t cache_bytes = int64_t{256} << 20;
    int64_t max_sessions_per_owner = 100'000;
    int32_t max_forks = kMaxForks;
    std::string server_id;  // in messages: who holds a session
    std::function<absl::Time()> now = absl::Now;
  };

  // `store` and `codec` are borrowed. Starts the threads that renew claims and
  // sweep the store.
  Sessions(Options options, BlobStore* store, const SnapshotCodec* codec);
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  // A new session. RESOURCE_EXHAUSTED: the owner has too many, or the store is
  // full. INVALID_ARGUMENT: a time to live that Pin() refuses; unset: the
  // default.
  absl::StatusOr<SessionInfo> Create(
      const std::string& owner, const std::string& request_id,
      std::shared_ptr<const Snapshot> snapshot,
      std::optional<absl::Duration> time_to_live);

  // To read only. NOT_FOUND.
  absl::StatusOr<std::shared_ptr<const Snapshot>> Open(const std::string& owner,
                                                       const std::string& id);

  // To work on: SessionClaims says how, and what it fails with.
  absl::StatusOr<SessionClaim> Claim(const std::string& owner,
                                     const std::string& id,
                                     const std::string& request_id,
                                     std::optional<int64_t> takeover_epoch);
  absl::StatusOr<SessionInfo> Commit(const SessionClaim& claim,
                                     std::shared_ptr<const Snapshot> snapshot);
  void Release(const SessionClaim& claim);

  absl::StatusOr<SessionInfo> Get(const std::string& owner,
                                  const std::string& id);
  struct Page {
    std::vector<SessionInfo> sessions;
    std::string next;  // empty: there are no more
  };
  absl::StatusOr<Page> List(const std::string& owner, const std::string& from,
                            int limit);
  // `count` new sessions like this one. All, or none
  // (but if the store fails meanwhile: then those that are left expire).
  // INVALID_ARGUMENT unless `count` is within 1 and max_forks.
  absl::StatusOr<std::vector<SessionInfo>> Fork(const std::string& owner,
                                                const std::string& id,
                                                int count);
  // ABORTED if a request holds it.
  absl::Status Delete(const std::string& owner, const std::string& id);
  // Lives that long from now on, used or not, and as long after each use.
  // INVALID_ARGUMENT unless it is positive and at most max_time_to_live.
  absl::StatusOr<SessionInfo> Pin(const std::string& owner,
                                  const std::string& id,
                                  absl::Duration time_to_live);

  // The snapshot's bytes, as SnapshotCodec writes them.
  absl::StatusOr<std::shared_ptr<const std::string>> Export(
      const std::string& owner, const std::string& id);
  // A new session of such bytes, which are checked.
  absl::StatusOr<SessionInfo> Import(const std::string& owner,
                                     std::string bytes);

  struct Stats {
    int64_t cached_sessions = 0;
    int64_t cached_bytes = 0;
    int64_t cache_hits = 0;
    int64_t cache_misses = 0;
    int64_t created = 0;
    int64_t committed = 0;
    int64_t repeated_answers = 0;
    int64_t lost_claims = 0;
    int64_t store_errors = 0;
  };
  Stats stats() const;

 private:
  // Makes a new session of `body`. `head` lacks what is this session's own.
  absl::StatusOr<SessionInfo> Add(const std::string& owner, SessionHead head,
                                  std::shared_ptr<const std::string> body);
  absl::Status CheckRoom(const std::string& owner, int64_t count);
  absl::Status CheckTimeToLive(absl::Duration time_to_live) const;
  SessionInfo InfoOf(const std::string& id,
                     const SessionTable::Stored& stored) const;

  const Options options_;
  SessionTable table_;
  EarlierTexts earlier_;
  SessionClaims claims_;
  SessionCounts counts_;
  std::atomic<int64_t> num_created_{0};
  RepeatedWork sweeping_;
};

}  // namespace flash

#endif  // SERVER_SESSIONS_SESSIONS_H_
