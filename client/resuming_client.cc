#include "client/resuming_client.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/error_text.h"
#include "client/stream_progress.h"

namespace flash {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

grpc::Status ToGrpc(const absl::Status& status, const std::string& address) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      absl::StrCat(address, ": ", status.message()));
}

// Half of `pause` to all of it: many clients lose a server at once, and should
// not all come back at once.
milliseconds Spread(milliseconds pause) {
  thread_local std::minstd_rand random{std::random_device{}()};
  std::uniform_int_distribution<int64_t> part(pause.count() / 2, pause.count());
  return milliseconds(part(random));
}

grpc::Status Cancelled() {
  return grpc::Status(grpc::StatusCode::CANCELLED, "cancelled");
}

}  // namespace

class ResumingClient::Run {
 public:
  Run(ResumingClient& owner, const v1::GenerateRequest& request,
      CancellableCall& call,
      const std::function<void(v1::GenerateEvent&)>& on_event,
      const std::function<void(const Resumption&)>& on_resumed)
      : owner_(owner),
        options_(owner.options_),
        call_(call),
        on_event_(on_event),
        on_resumed_(on_resumed),
        progress_(request),
        index_(owner.current_.load()) {}

  grpc::Status ToTheEnd() {
    while (true) {
      heard_ = had_news_ = false;
      grpc::Status status = Stream();
      if (!problem_.ok()) return problem_;
      if (progress_.complete()) {
        if (auto event = progress_.TakeHeld()) on_event_(*event);
        return grpc::Status::OK;
      }
      if (status.ok()) {
        status = grpc::Status(grpc::StatusCode::UNAVAILABLE,
                              "the stream ended before the answer");
      }
      // Its stream may have ended by itself just before.
      if (call_.cancelled()) return Cancelled();
      if (!options_.resume || !IsWorthAnother(status)) return status;
      status = GoToNext(status);
      if (!status.ok()) return status;
    }
  }

 private:
  Server& server() { return owner_.servers_[index_]; }

  // One stream of this server.
  grpc::Status Stream() {
    owner_.current_.store(index_);
    if (options_.resume) {
      const grpc::Status status = CheckNumerics();
      if (!status.ok()) return status;
    }
    const milliseconds elapsed = progress_.accepted()
                                     ? std::chrono::duration_cast<milliseconds>(
                                           Clock::now() - accepted_at_)
                                     : milliseconds(0);
    return server().client->Generate(
        progress_.BeginStream(elapsed), call_,
        [this](v1::GenerateEvent& event) { Hear(event); });
  }

  // Whether this server gives the bits that the first one gave.
  grpc::Status CheckNumerics() {
    v1::ServerInfo info;
    const grpc::Status status = server().client->GetServerInfo(call_, info);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      // Ours, not the caller's, if the caller's has not passed.
      if (!call_.Pause(milliseconds(0))) return status;
      return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                          absl::StrCat(server().address, " does not answer"));
    }
    if (!status.ok()) return status;
    owner_.answered_.store(true);
    if (progress_.accepted() && info.numerics() != numerics_) {
      problem_ = ToGrpc(
          absl::FailedPreconditionError(absl::StrCat(
              "the answer cannot be gone on with here: this server computes "
              "as \"",
              info.numerics(), "\", and the one before as \"", numerics_,
              "\"; that one was lost with ", ErrorText(reason_))),
          server().address);
      return problem_;
    }
    numerics_ = info.numerics();
    return status;
  }

  void Hear(v1::GenerateEvent& event) {
    if (!problem_.ok()) return;
    heard_ = true;
    if (event.has_accepted()) {
      if (!progress_.accepted()) {
        accepted_at_ = Clock::now();
      } else {
        on_resumed_({.address = server().address,
                     .num_tokens = progress_.num_tokens(),
                     .reason = reason_});
      }
    }
    const auto is_new = progress_.Take(event);
    if (!is_new.ok()) {
      problem_ = ToGrpc(is_new.status(), server().address);
      call_.Cancel();
    } else if (*is_new) {
      had_news_ = true;
      on_event_(event);
    }
  }

  // Whether a stream that ended so may go better elsewhere, or later.
  bool IsWorthAnother(const grpc::Status& status) {
    // gRPC's own errors have none.
    const std::string reason = ErrorReason(status);
    if (reason.empty() && !progress_.may_begin_again()) return false;
    switch (status.error_code()) {
      case grpc::StatusCode::UNAVAILABLE:
        return true;
      case grpc::StatusCode::CANCELLED:
      case grpc::StatusCode::UNKNOWN:
        return reason.empty();
      case grpc::StatusCode::INTERNAL:
        // Not after a number that is not finite, which would be so again.
        return reason.empty() || reason == "DEVICE_FAILED";
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        return reason == "QUEUE_FULL";
      case grpc::StatusCode::ALREADY_EXISTS:
      case grpc::StatusCode::ABORTED:
        // Our own last stream: its server has not seen yet that it was cut.
        return was_cut_ && !heard_;
      default:
        return false;
    }
  }

  // Chooses who is asked next after `status`, and waits until it is time. Not
  // OK, and what the call ends with, if nobody is.
  grpc::Status GoToNext(const grpc::Status& status) {
    const size_t num_servers = owner_.servers_.size();
    const Clock::time_point now = Clock::now();
    if (had_news_ || num_tries_ == 0) {
      last_news_ = now;
      num_tries_ = 0;
    }
    ++num_tries_;
    if (!owner_.answered_.load() && num_tries_ >= num_servers) return status;
    if (now - last_news_ >= options_.patience) return status;
    reason_ = status;
    was_cut_ |= status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED;
    index_ = (index_ + 1) % num_servers;
    const auto told = RetryDelay(status);
    if (call_.Pause(told.has_value() ? *told : NextPause(num_servers))) {
      return grpc::Status::OK;
    }
    return call_.cancelled()
               ? Cancelled()
               : grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                              "the time was over before the answer");
  }

  // None before the servers that were not asked yet.
  milliseconds NextPause(size_t num_servers) const {
    if (num_tries_ < num_servers) return milliseconds(0);
    const size_t doublings = std::min(num_tries_ - num_servers, size_t{16});
    return Spread(std::min(options_.first_pause * (int64_t{1} << doublings),
                           options_.longest_pause));
  }

  ResumingClient& owner_;
  const ResumeOptions& options_;
  CancellableCall& call_;
  const std::function<void(v1::GenerateEvent&)>& on_event_;
  const std::function<void(const Resumption&)>& on_resumed_;
  StreamProgress progress_;

  size_t index_;          // of the server
  std::string numerics_;  // of the servers so far
  Clock::time_point accepted_at_;

  // Of the stream: whether anything came, and whether it was new.
  bool heard_ = false;
  bool had_news_ = false;
  grpc::Status problem_;  // why the answer is not to be had any more
  grpc::Status reason_;   // how the last stream ended
  bool was_cut_ = false;  // and that its server may not know yet

  size_t num_tries_ = 0;         // since
  Clock::time_point last_news_;  // this
};

ResumingClient::ResumingClient(const std::vector<std::string>& addresses,
                               ResumeOptions options)
    : options_(options) {
  for (const std::string& address : addresses) {
    servers_.push_back({address, std::make_unique<FlashClient>(address)});
  }
}

grpc::Status ResumingClient::Generate(
    const v1::GenerateRequest& request, CancellableCall& call,
    const std::function<void(v1::GenerateEvent&)>& on_event,
    const std::function<void(const Resumption&)>& on_resumed) {
  return Run(*this, request, call, on_event, on_resumed).ToTheEnd();
}

}  // namespace flash
