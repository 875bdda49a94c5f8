// One call that runs a request: what a stream and a unary call have in common,
// and the way of a request from the wire to the engine.

#ifndef SERVER_SERVICE_CALL_H_
#define SERVER_SERVICE_CALL_H_

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/mutex.h"
#include "server/scheduler/engine.h"
#include "server/scheduler/request.h"
#include "server/service/budget.h"
#include "server/service/identity.h"
#include "server/service/live_ids.h"
#include "server/service/request_parser.h"
#include "server/service/request_sessions.h"
#include "server/service/wire_events.h"
#include "server/service/workers.h"
#include "server/sessions/checkpoint_keeper.h"
#include "server/sessions/prefix_cache.h"
#include "server/sessions/sessions.h"

namespace flash {

// What is to be known of a call that runs a request when it is over.
struct CallReport {
  std::string method;      // "Generate"
  std::string peer;        // as gRPC writes it
  std::string request_id;  // empty if the request was not read
  absl::Status status;
  Usage usage;
  Timings timings;
  Clock::duration total{0};  // since the call arrived
};

// What every call works with. All are borrowed and outlive every call.
struct CallParts {
  const RequestParser* parser = nullptr;
  Engine* engine = nullptr;
  LiveIds* live_ids = nullptr;
  const Identity* identity = nullptr;
  Workers* text_workers = nullptr;
  Workers* store_workers = nullptr;  // whatever waits for the sessions' store
  Sessions* sessions = nullptr;      // null: there are none
  Budget* session_bytes = nullptr;   // what requests go on from, and leave
  Budget* session_transfers = nullptr;  // exports and imports
  // Where requests that were cut off elsewhere have left their states, and
  // where these are put for the engine; null: nowhere.
  CheckpointKeeper* checkpoints = nullptr;
  PrefixCache* prefix_cache = nullptr;
  // Told at the end of each call that runs a request, on any thread; must not
  // wait. May be empty.
  std::function<void(const CallReport&)> report;
  // Events that may wait for a client; then its request pauses.
  size_t outbox_events = 64;
  // How long the rest of an answer waits for a client that reads nothing.
  Clock::duration linger = std::chrono::seconds(30);
};

// Who called what, until when.
struct CallOrigin {
  std::string method;
  std::string peer;
  absl::StatusOr<std::string> owner;  // or why it cannot be told
  std::optional<Clock::time_point> deadline;
};

// An output that is to be saved is saved when the client has taken all that it
// was told of it, is told when it is in the store, and the call ends after all
// of these, and after a session that it still held is given up.
//
// Thread safety: as RequestSink; Cancel() on any thread.
// Lifetime: shared by gRPC, for as long as it may use the call, by the request,
// and by the workers that save its outputs.
class Call : public RequestSink, public std::enable_shared_from_this<Call> {
 public:
  Call(const CallParts& parts, CallOrigin origin);

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool IsCancelled() const final { return cancelled_.load(); }
  int64_t Room() const override { return std::numeric_limits<int64_t>::max(); }

  // RequestSink, on the decode thread.
  void OnFinished(Finished finished) final;
  void OnDone(const absl::Status& status, const Usage& usage,
              const Timings& timings) final;

  // Nobody waits for the answer any more.
  void Cancel();

  const CallParts& parts() const { return parts_; }
  const CallOrigin& origin() const { return origin_; }

  // These are for Admit() alone, before the engine has the request. The first
  // keeps the id, for events and the report, and the claim on it until the end;
  // the second what it does with sessions; the last what Accepted tells of
  // `request`, which is complete.
  void Name(const std::string& request_id, LiveIds::Lease lease);
  RequestSessions& UseSessions(SessionUse use, const Request& request);
  void Hold(Budget::Share share) { share_ = std::move(share); }
  void Resolve(const Request& request);
  // Whether an answer of this form can hold what `request` may give.
  virtual absl::Status CheckSize(const Request&) const {
    return absl::OkStatus();
  }

 protected:
  // Calls `then` when the client has taken all that it was told until now, or
  // the call is cancelled: perhaps at once, else on any thread, which `then`
  // must not hold up.
  virtual void WhenTaken(std::function<void()> then) { then(); }
  // An output is complete, and in the store if `session` is set. On any thread,
  // while others are told of other outputs.
  virtual void Tell(Finished finished,
                    const std::optional<SessionInfo>& session) = 0;
  // The last call: nothing is told any more. On any thread.
  virtual void Close(const absl::Status& status, const Usage& usage,
                     const Timings& timings) = 0;

  // To be called first in Close(): gives the id back and writes the report.
  void End(const absl::Status& status, const Usage& usage,
           const Timings& timings);

  const RequestFacts& facts() const { return facts_; }

 private:
  struct Outcome {
    absl::Status status;
    Usage usage;
    Timings timings;
  };

  // On a store worker.
  void SaveAndTell(Finished finished);
  // Gives up what is still held, then Close().
  void Conclude(Outcome outcome);

  const CallParts& parts_;
  const CallOrigin origin_;
  const Clock::time_point arrival_ = Clock::now();
  std::atomic<bool> cancelled_{false};
  RequestFacts facts_;  // written before, read after the engine has the request
  LiveIds::Lease lease_;
  std::optional<RequestSessions> sessions_;  // as facts_
  Budget::Share share_;                      // likewise

  Mutex saves_mutex_;
  int num_saves_ ABSL_GUARDED_BY(saves_mutex_) = 0;  // that are not done
  // Why one failed; the call ends with it.
  absl::Status save_status_ ABSL_GUARDED_BY(saves_mutex_);
  // How the request ended, while saves are not done.
  std::optional<Outcome> outcome_ ABSL_GUARDED_BY(saves_mutex_);
};

// Reads the request in `bytes` and gives it to the engine, with `call` as its
// sink; on a worker if the message is long, or the request needs the sessions'
// store. Whatever is wrong becomes call->OnDone(), perhaps before this returns.
// Never waits.
template <typename WireRequest>
void Admit(const grpc::ByteBuffer& bytes, const std::shared_ptr<Call>& call);

}  // namespace flash

#endif  // SERVER_SERVICE_CALL_H_
