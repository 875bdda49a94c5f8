#include "client/load_run.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "client/error_text.h"
#include "client/flash_client.h"
#include "kernels/mutex.h"

namespace flash {
namespace {

using Clock = std::chrono::steady_clock;

// Streams on one connection; gRPC serves a connection with one lock.
constexpr int kSessionsPerConnection = 16;

// After a call that failed, so that a server that refuses is not flooded.
constexpr auto kPauseAfterFailure = std::chrono::milliseconds(100);

double Milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// When what counts begins and ends.
struct Window {
  Clock::time_point begin;
  Clock::time_point end;
  bool Has(Clock::time_point time) const { return time >= begin && time < end; }
};

// What the sessions share.
class Load {
 public:
  Load(const LoadSettings& settings, const v1::ModelInfo& model)
      : settings_(settings), model_(model), start_(Clock::now()) {
    window_.begin = start_ + settings.warmup;
    window_.end = settings.duration.count() > 0
                      ? window_.begin + settings.duration
                      : Clock::time_point::max();
  }

  // One session, until the end.
  void RunSession(int session, FlashClient& client);

  // Returns at the end; asks `go_on` each second whether that is now.
  void Wait(const std::function<bool(const LoadProgress&)>& go_on);

  LoadResult TakeResult() {
    MutexLock lock(&mutex_);
    result_.seconds = std::chrono::duration<double>(
                          std::min(end_, window_.end) - window_.begin)
                          .count();
    result_.seconds = std::max(result_.seconds, 0.0);
    return std::move(result_);
  }

 private:
  void RunCall(FlashClient& client, const v1::GenerateRequest& request);
  // Counts the call, with what was measured in it.
  void Record(const grpc::Status& status, Clock::time_point began,
              const LoadResult& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Waits for the end, but no longer than until `time`. False at the end.
  bool Goes(Clock::time_point time);
  bool Answered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LoadProgress Progress();
  void End();

  const LoadSettings& settings_;
  const v1::ModelInfo& model_;
  const Clock::time_point start_;
  Window window_;

  std::atomic<int64_t> tokens_{0};
  std::atomic<bool> over_{false};
  Mutex mutex_;
  CondVar changed_;
  Clock::time_point end_ ABSL_GUARDED_BY(mutex_);
  LoadResult result_ ABSL_GUARDED_BY(mutex_);
  int64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t failed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<CancellableCall*> running_ ABSL_GUARDED_BY(mutex_);
};

void Load::RunSession(int session, FlashClient& client) {
  for (int64_t round = 0; !over_.load(); ++round) {
    RunCall(client, LoadRequest(settings_, model_, session, round));
  }
}

void Load::RunCall(FlashClient& client, const v1::GenerateRequest& request) {
  CancellableCall call;
  {
    MutexLock lock(&mutex_);
    if (over_.load()) return;
    running_.push_back(&call);
  }
  LoadResult measured;
  const Clock::time_point began = Clock::now();
  Clock::time_point last = began;
  bool first = true;
  const grpc::Status status =
      client.Generate(request, call, [&](const v1::GenerateEvent& event) {
        if (event.has_accepted()) {
          measured.prompt_tokens = event.accepted().prompt_tokens();
        }
        if (!event.has_token()) return;
        const Clock::time_point now = Clock::now();
        tokens_.fetch_add(1, std::memory_order_relaxed);
        if (window_.Has(now)) {
          ++measured.tokens;
          if (!first) measured.gap_ms.Add(Milliseconds(now - last));
        }
        if (first && window_.Has(began)) {
          measured.first_token_ms.Add(Milliseconds(now - began));
        }
        first = false;
        last = now;
      });
  {
    MutexLock lock(&mutex_);
    running_.erase(std::find(running_.begin(), running_.end(), &call));
    Record(status, began, measured);
  }
  changed_.NotifyAll();
  if (!status.ok() && !over_.load()) {
    std::this_thread::sleep_for(kPauseAfterFailure);
  }
}

void Load::Record(const grpc::Status& status, Clock::time_point began,
                  const LoadResult& call) {
  result_.tokens += call.tokens;
  result_.gap_ms.Add(call.gap_ms);
  result_.first_token_ms.Add(call.first_token_ms);
  const bool cut =
      over_.load() && status.error_code() == grpc::StatusCode::CANCELLED;
  if (!cut) {
    ++ended_;
    failed_ += !status.ok();
    if (IsFailure(status) && result_.requests_failed++ == 0) {
      result_.first_failure = ErrorText(status);
    }
  }
  if (!window_.Has(began)) return;
  ++result_.requests_begun;
  result_.prompt_tokens += call.prompt_tokens;
  if (cut) {
    ++result_.requests_cut;
    return;
  }
  ++result_.by_status[CodeName(status.error_code())];
  result_.requests_refused += IsRefusal(status);
  if (status.ok()) {
    result_.request_ms.Add(Milliseconds(Clock::now() - began));
  }
}

bool Load::Answered() const {
  int64_t count = 0;
  for (const auto& [name, number] : result_.by_status) count += number;
  return settings_.requests > 0 && count >= settings_.requests;
}

bool Load::Goes(Clock::time_point time) {
  const Clock::time_point until = std::min(time, window_.end);
  MutexLock lock(&mutex_);
  while (Clock::now() < until && !Answered()) {
    changed_.WaitUntil(&mutex_, until);
  }
  return Clock::now() < window_.end && !Answered();
}

LoadProgress Load::Progress() {
  MutexLock lock(&mutex_);
  return {
      .seconds = std::chrono::duration<double>(Clock::now() - start_).count(),
      .tokens = tokens_.load(),
      .requests_ended = ended_,
      .requests_failed = failed_};
}

void Load::End() {
  MutexLock lock(&mutex_);
  end_ = Clock::now();
  over_.store(true);
  for (CancellableCall* call : running_) call->Cancel();
}

void Load::Wait(const std::function<bool(const LoadProgress&)>& go_on) {
  Clock::time_point next = start_ + std::chrono::seconds(1);
  while (Goes(next) && go_on(Progress())) {
    next += std::chrono::seconds(1);
  }
  End();
}

}  // namespace

v1::GenerateRequest LoadRequest(const LoadSettings& settings,
                                const v1::ModelInfo& model, int session,
                                int64_t round) {
  std::seed_seq seed{settings.seed, static_cast<uint64_t>(session),
                     static_cast<uint64_t>(round)};
  std::mt19937_64 random(seed);
  v1::GenerateRequest request;
  if (!settings.prompt_text.empty()) {
    request.set_text(settings.prompt_text);
  } else {
    std::uniform_int_distribution<uint32_t> id(0, model.num_pieces() - 1);
    for (int i = 0; i < settings.prompt_tokens; ++i) {
      request.mutable_token_ids()->add_ids(id(random));
    }
  }
  request.mutable_sampling()->set_temperature(settings.temperature);
  request.mutable_sampling()->set_seed(random());
  request.mutable_stopping()->set_max_tokens(settings.max_tokens);
  request.mutable_stopping()->set_ignore_eos(true);  // the same length for all
  return request;
}

bool IsRefusal(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         ErrorReason(status) == "QUEUE_FULL";
}

bool IsFailure(const grpc::Status& status) {
  return !status.ok() && !IsRefusal(status);
}

LoadResult RunLoad(const LoadSettings& settings, const v1::ModelInfo& model,
                   const std::function<bool(const LoadProgress&)>& go_on) {
  std::vector<std::unique_ptr<FlashClient>> clients;
  for (int i = 0; i < settings.sessions; i += kSessionsPerConnection) {
    clients.push_back(std::make_unique<FlashClient>(settings.server));
  }
  Load load(settings, model);
  std::vector<std::thread> threads;
  for (int i = 0; i < settings.sessions; ++i) {
    threads.emplace_back([&load, &clients, i] {
      load.RunSession(i, *clients[i / kSessionsPerConnection]);
    });
  }
  load.Wait(go_on);
  for (auto& thread : threads) thread.join();
  return load.TakeResult();
}

}  // namespace flash
