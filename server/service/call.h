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

#include "absl/status/status.h"
#include "server/scheduler/engine.h"
#include "server/scheduler/request.h"
#include "server/service/live_ids.h"
#include "server/service/request_parser.h"
#include "server/service/text_workers.h"
#include "server/service/wire_events.h"

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
  TextWorkers* text_workers = nullptr;
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
  std::optional<Clock::time_point> deadline;
};

// Thread safety: as RequestSink; Cancel() on any thread.
// Lifetime: shared by gRPC, for as long as it may use the call, and by the
// request.
class Call : public RequestSink {
 public:
  Call(const CallParts& parts, CallOrigin origin);

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool IsCancelled() const final { return cancelled_.load(); }
  int64_t Room() const override { return std::numeric_limits<int64_t>::max(); }

  // Nobody waits for the answer any more.
  void Cancel();

  const CallParts& parts() const { return parts_; }
  const CallOrigin& origin() const { return origin_; }

  // These are for Admit() alone, before the engine has the request. The first
  // keeps the id, for events and the report, and the claim on it until the end;
  // the second keeps what Accepted tells of `request`, which is complete.
  void Name(const std::string& request_id, LiveIds::Lease lease);
  void Resolve(const Request& request);
  // Whether an answer of this form can hold what `request` may give.
  virtual absl::Status CheckSize(const Request&) const {
    return absl::OkStatus();
  }

 protected:
  // To be called first in OnDone(): gives the id back and writes the report.
  void End(const absl::Status& status, const Usage& usage,
           const Timings& timings);

  const RequestFacts& facts() const { return facts_; }

 private:
  const CallParts& parts_;
  const CallOrigin origin_;
  const Clock::time_point arrival_ = Clock::now();
  std::atomic<bool> cancelled_{false};
  RequestFacts facts_;  // written before, read after the engine has the request
  LiveIds::Lease lease_;
};

// Reads the request in `bytes` and gives it to the engine, with `call` as its
// sink; on a worker if the message is long. Whatever is wrong becomes
// call->OnDone(), perhaps before this returns. Never waits.
template <typename WireRequest>
void Admit(const grpc::ByteBuffer& bytes, const std::shared_ptr<Call>& call);

}  // namespace flash

#endif  // SERVER_SERVICE_CALL_H_
