#include "server/scheduler/engine.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/scheduler/interruption.h"
#include "server/scheduler/prefix_keys.h"
#include "server/scheduler/request_limits.h"

namespace flash {
namespace {

// Snapshots that may be waited for at a time.
constexpr size_t kMaxSnapshotsWanted = 64;

absl::Status CheckOptions(const EngineOptions& options,
                          const LanguageModel& model) {
  if (options.max_step_rows < 0 || options.max_step_rows > model.max_rows()) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_step_rows is ", options.max_step_rows,
                     ", it can be from 1 to ", model.max_rows(), ", or 0"));
  }
  // One for those who decode, one for those who wait to.
  const int least = model.num_slots() > 1 ? 2 : 1;
  const int rows =
      options.max_step_rows > 0 ? options.max_step_rows : model.max_rows();
  if (std::min(rows, model.max_logits_rows()) < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_step_rows is ", rows, " and the model has logits for ",
        model.max_logits_rows(), " rows; with ", model.num_slots(),
        " slots both are at least ", least));
  }
  if (options.max_drafted_tokens < 0 ||
      options.max_drafted_tokens > kMaxDraftedTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_drafted_tokens is ", options.max_drafted_tokens,
                     "; it is from 0 to ", kMaxDraftedTokens));
  }
  if (options.max_queued_requests < 1 || options.max_queued_tokens < 1 ||
      options.num_samplers < 1) {
    return absl::InvalidArgumentError(
        "max_queued_requests, max_queued_tokens and num_samplers are at least "
        "1");
  }
  return absl::OkStatus();
}

RequestLimits LimitsOf(const EngineOptions& options,
                       const LanguageModel& model) {
  return {.num_slots = model.num_slots(),
          .vocab_size = model.vocab_size(),
          .max_length = options.max_length,
          .max_prompt_logprobs = options.max_prompt_logprobs,
          .max_queued_tokens = options.max_queued_tokens};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(
    EngineOptions options, LanguageModel* model, const Tokenizer* tokenizer,
    ParallelFor parallel_for) {
  const absl::Status checked = CheckOptions(options, *model);
  if (!checked.ok()) return checked;
  auto engine = absl::WrapUnique(new Engine(
      std::move(options), model, tokenizer, std::move(parallel_for)));
  engine->Publish();
  MutexLock lock(&engine->join_mutex_);
  engine->thread_ = std::thread(&Engine::Loop, engine.get());
  return engine;
}

Engine::Engine(EngineOptions options, LanguageModel* model,
               const Tokenizer* tokenizer, ParallelFor parallel_for)
    : options_(std::move(options)),
      limits_(LimitsOf(options_, *model)),
      chunk_size_(model->chunk_size()),
      queue_(options_.max_queued_requests, options_.max_queued_tokens),
      scheduler_(options_, model, tokenizer, std::move(parallel_for), &queue_) {
}

Engine::~Engine() { Stop(options_.now()); }

absl::Status Engine::Submit(std::unique_ptr<Request> request) {
  const absl::Status checked = CheckRequest(*request, limits_);
  if (!checked.ok()) return checked;
  std::vector<PrefixKey> keys;
  if (options_.prefix_states != nullptr) {
    keys = PrefixKeysOf(*options_.prefix_states, *request, chunk_size_);
  }
  const absl::Status pushed =
      queue_.Push(request, options_.now(), std::move(keys));
  if (pushed.ok()) Wake();
  return pushed;
}

void Engine::Notify() { Wake(); }

void Engine::TakeSnapshot(std::string owner, std::string request_id,
                          int output_index, SnapshotDone done) {
  absl::Status refused;
  {
    MutexLock lock(&mutex_);
    if (loop_ended_) {
      refused = absl::UnavailableError("the server has stopped");
    } else if (snapshots_wanted_.size() >= kMaxSnapshotsWanted) {
      refused = absl::ResourceExhaustedError(
          absl::StrCat(snapshots_wanted_.size(),
                       " requests wait to be saved, which is the limit"));
    } else {
      snapshots_wanted_.push_back({std::move(owner), std::move(request_id),
                                   output_index, std::move(done)});
      wake_ = true;
      changed_.NotifyOne();
      return;
    }
  }
  done(refused);
}

bool Engine::TakeOneSnapshot() {
  SnapshotWanted wanted;
  {
    MutexLock lock(&mutex_);
    if (snapshots_wanted_.empty()) return false;
    wanted = std::move(snapshots_wanted_.front());
    snapshots_wanted_.pop_front();
  }
  wanted.done(scheduler_.TakeSnapshot(wanted.owner, wanted.request_id,
                                      wanted.output_index));
  return true;
}

void Engine::RefuseSnapshots() {
  std::deque<SnapshotWanted> wanted;
  {
    MutexLock lock(&mutex_);
    loop_ended_ = true;
    wanted.swap(snapshots_wanted_);
  }
  for (SnapshotWanted& each : wanted) {
    each.done(absl::UnavailableError("the server has stopped"));
  }
}

void Engine::Drain() {
  queue_.Close(absl::UnavailableError("the server is shutting down"));
}

void Engine::Stop(Clock::time_point deadline) {
  Drain();
  {
    MutexLock lock(&mutex_);
    stop_at_ = std::min(deadline, stop_at_.value_or(deadline));
    wake_ = true;
    changed_.NotifyOne();
  }
  MutexLock lock(&join_mutex_);
  if (thread_.joinable()) thread_.join();
}

absl::Status Engine::device_status() const {
  MutexLock lock(&mutex_);
  return device_status_;
}

EngineStats Engine::stats() const {
  EngineStats stats;
  {
    MutexLock lock(&mutex_);
    stats = stats_;
  }
  stats.queued_requests = queue_.num_requests();
  stats.queued_tokens = queue_.num_tokens();
  stats.draining = queue_.closed();
  return stats;
}

void Engine::Loop() {
  while (Turn()) {
  }
  RefuseSnapshots();
  Publish();
  const absl::Status& status = scheduler_.device_status();
  if (!status.ok() && options_.on_device_failure) {
    options_.on_device_failure(status);
  }
}

bool Engine::Turn() {
  std::optional<Clock::time_point> stop_at;
  {
    MutexLock lock(&mutex_);
    wake_ = false;  // whatever woke us is seen by RunOnce()
    stop_at = stop_at_;
  }
  if (stop_at.has_value() && *stop_at <= options_.now()) {
    const absl::Status status =
        absl::UnavailableError("the server is shutting down");
    scheduler_.EndAll(status, status);
    return false;
  }
  bool busy = scheduler_.RunOnce();
  Publish();
  if (!scheduler_.device_status().ok()) return false;
  busy = TakeOneSnapshot() || busy;
  if (busy) return true;
  if (stop_at.has_value() && scheduler_.idle()) return false;
  WaitForWork(std::min(scheduler_.next_wakeup(),
                       stop_at.value_or(Clock::time_point::max())));
  return true;
}

void Engine::WaitForWork(Clock::time_point until) {
  const Clock::time_point now = options_.now();
  const Clock::time_point alive = Later(now, options_.heartbeat_interval);
  const Clock::duration wait = std::min(until, alive) - now;
  const Clock::time_point wake_at = Later(Clock::now(), wait);
  MutexLock lock(&mutex_);
  while (!wake_ && Clock::now() < wake_at) {
    changed_.WaitUntil(&mutex_, wake_at);
  }
}

void Engine::Wake() {
  MutexLock lock(&mutex_);
  wake_ = true;
  changed_.NotifyOne();
}

void Engine::Publish() {
  MutexLock lock(&mutex_);
  stats_ = scheduler_.stats();
  stats_.heartbeat = options_.now();
  device_status_ = scheduler_.device_status();
}

}  // namespace flash
