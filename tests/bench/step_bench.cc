#include "tests/bench/step_bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "kernels/check.h"
#include "tests/bench/median.h"
#include "tests/bench/prompt_cost.h"

namespace flash {
namespace {

using SteadyClock = std::chrono::steady_clock;

double MillisecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - start)
      .count();
}

// That this process has used so far.
double CpuSeconds() {
  rusage usage = {};
  FLASH_CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Step n does the same work as step n + period.
StepTimes Summarise(const std::vector<double>& times, int64_t period) {
  FLASH_CHECK(!times.empty());
  std::vector<double> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](double quantile) {
    const double index = quantile * static_cast<double>(sorted.size());
    return sorted[std::min(sorted.size() - 1, static_cast<size_t>(index))];
  };
  std::vector<double> of_period;
  for (int64_t first = 0; first < period; ++first) {
    std::vector<double> repetitions;
    for (size_t n = first; n < times.size(); n += period) {
      repetitions.push_back(times[n]);
    }
    of_period.push_back(Median(std::move(repetitions)));
  }
  const double dearest = *std::max_element(of_period.begin(), of_period.end());
  return {.median = at(0.5),
          .p99 = at(0.99),
          .p999 = at(0.999),
          .max = sorted.back(),
          .max_to_median = dearest / Median(std::move(of_period))};
}

// Feeds random tokens to the slots of a model and times the steps.
class Feeder {
 public:
  explicit Feeder(FlashModel& model) : model_(model) {}

  // `tokens` tokens to one slot, in the largest runs there are.
  void Prompt(int slot, int64_t tokens) {
    std::vector<int32_t> ids(model_.max_rows());
    const int64_t chunk = model_.chunk_size();
    while (tokens > 0) {
      const int64_t size = std::min({tokens, static_cast<int64_t>(ids.size()),
                                     chunk - model_.position(slot) % chunk});
      for (int64_t n = 0; n < size; ++n) ids[n] = RandomId();
      const Run run = {slot, std::span(ids).first(size), LogitsWanted::kNone};
      Step(std::span(&run, 1));
      tokens -= size;
    }
  }

  // A chunk to each of the first `prompts` slots, which all stand at its
  // beginning, an equal part of it to each in a step; milliseconds.
  double PromptChunks(int prompts) {
    const int64_t chunk = model_.chunk_size();
    const int64_t part = std::min<int64_t>(chunk, model_.max_rows() / prompts);
    FLASH_CHECK(part > 0);
    ids_.resize(chunk);
    for (int32_t& id : ids_) id = RandomId();
    const auto start = SteadyClock::now();
    for (int64_t at = 0; at < chunk; at += part) {
      const int64_t size = std::min(part, chunk - at);
      runs_.clear();
      for (int slot = 0; slot < prompts; ++slot) {
        runs_.push_back(
            {slot, std::span(ids_).subspan(at, size), LogitsWanted::kNone});
      }
      Step(runs_);
    }
    return MillisecondsSince(start);
  }

  // One token to each of the first `batch` slots; milliseconds.
  double Decode(int batch) { return DecodeSlots(0, batch); }

  // `rows` tokens to slot 0 as one run (fewer where its chunk ends), with the
  // logits after each; milliseconds a step.
  double DecodeRun(int rows) {
    const int chunk = model_.chunk_size();
    const int left = chunk - static_cast<int>(model_.position(0) % chunk);
    ids_.resize(std::min(rows, left));
    for (int32_t& id : ids_) id = RandomId();
    runs_.assign(1, {0, ids_, LogitsWanted::kAll});
    const auto start = SteadyClock::now();
    Step(runs_);
    return MillisecondsSince(start);
  }

  double DecodeSlots(int first, int count) {
    ids_.resize(count);
    runs_.clear();
    for (int n = 0; n < count; ++n) {
      ids_[n] = RandomId();
      runs_.push_back({first + n, std::span(&ids_[n], 1), LogitsWanted::kLast});
    }
    const auto start = SteadyClock::now();
    Step(runs_);
    return MillisecondsSince(start);
  }

 private:
  int32_t RandomId() {
    return static_cast<int32_t>(random_() % model_.vocab_size());
  }
  void Step(std::span<const Run> runs) {
    FLASH_CHECK(model_.Step(runs, results_).ok());
  }

  FlashModel& model_;
  std::mt19937 random_{1};
  std::vector<int32_t> ids_;
  std::vector<Run> runs_;
  std::vector<RunResult> results_;
};

constexpr int kWarmUpSteps = 20;
constexpr int kStepsBetween = 8;
constexpr int kRepetitions = 5;  // of a period, at least

// Steps around a chunk's end with all requests in phase; the largest of them.
// Each is the best of a few rounds, so that it is the work that counts.
double MeasureInPhase(FlashModel& model, int batch) {
  constexpr int kRounds = 3;
  constexpr int kSteps = 24;
  const int64_t chunk = model.chunk_size();
  std::vector<double> best;
  for (int round = 0; round < kRounds; ++round) {
    Feeder feeder(model);
    model.Reset(0);
    feeder.Prompt(0, chunk + std::max<int64_t>(0, chunk - kSteps + 2));
    for (int slot = 1; slot < batch; ++slot) model.CopySlot(0, slot);
    for (int step = 0; step < kSteps; ++step) {
      const double time = feeder.Decode(batch);
      if (round == 0) {
        best.push_back(time);
      } else {
        best[step] = std::min(best[step], time);
      }
    }
  }
  return *std::max_element(best.begin(), best.end());
}

}  // namespace

DecodeFigures MeasureDecode(FlashModel& model, int batch, int steps,
                            const std::function<void()>& in_between) {
  FLASH_CHECK(batch <= model.num_slots());
  Feeder feeder(model);
  const int64_t chunk = model.chunk_size();
  for (int slot = 0; slot < batch; ++slot) {
    model.Reset(slot);
    // A closed chunk behind each, and offsets from 0 to nearly C.
    feeder.Prompt(slot, chunk + chunk * int64_t{slot} / batch);
  }
  for (int step = 0; step < kWarmUpSteps; ++step) feeder.Decode(batch);
  const int64_t period = std::max<int64_t>(1, chunk / batch);
  const int64_t repetitions =
      std::max<int64_t>(kRepetitions, (steps + period - 1) / period);
  std::vector<double> times;
  double bytes = 0;
  double cpu_seconds = 0;
  for (int64_t step = 0; step < repetitions * period; ++step) {
    const double cpu_before = CpuSeconds();
    times.push_back(feeder.Decode(batch));
    cpu_seconds += CpuSeconds() - cpu_before;
    bytes += static_cast<double>(model.step_bytes());
    if (step % kStepsBetween == 0) in_between();
  }
  const double count = static_cast<double>(times.size());
  const double total = std::accumulate(times.begin(), times.end(), 0.0);
  return {.batch = batch,
          .step_ms = Summarise(times, period),
          .step_ms_max_in_phase = MeasureInPhase(model, batch),
          .tokens_per_second = 1000.0 * batch * count / total,
          .cpu_seconds_per_token = cpu_seconds / count / batch,
          .bytes_per_step = bytes / count,
          .gbps = bytes / count / Median(times) * 1e-6};
}

StepTimes MeasureOneRequest(FlashModel& model, int chunks,
                            const std::function<void(int)>& in_between) {
  // Coprime to any chunk, so that no place of it is always the first behind
  // what comes in between, which leaves nothing of ours in the cache.
  constexpr int kSteps = 37;
  Feeder feeder(model);
  model.Reset(0);
  feeder.Prompt(0, model.chunk_size());
  std::vector<double> times;
  for (int step = 0; step < chunks * model.chunk_size(); ++step) {
    times.push_back(feeder.Decode(1));
    if (times.size() % kSteps == 0) in_between(kSteps);
  }
  return Summarise(times, model.chunk_size());
}

std::array<double, 3> MeasureFarPositions(FlashModel& model) {
  constexpr std::array<int64_t, 3> kPositions = {1000, 100'000, 1'000'000};
  FLASH_CHECK(model.num_slots() >= 3);
  const int64_t chunk = model.chunk_size();
  Feeder feeder(model);
  for (int slot = 0; slot < 3; ++slot) {
    model.Reset(slot);
    feeder.Prompt(slot, chunk);
    model.Jump(slot, std::max<int64_t>(0, kPositions[slot] / chunk - 1));
  }
  std::array<std::vector<double>, 3> times;
  for (int64_t step = 0; step < 2 * chunk; ++step) {
    for (int slot = 0; slot < 3; ++slot) {
      times[slot].push_back(feeder.DecodeSlots(slot, 1));
    }
  }
  return {Median(times[0]), Median(times[1]), Median(times[2])};
}

double MeasureRuns(FlashModel& model, int rows) {
  Feeder feeder(model);
  model.Reset(0);
  feeder.Prompt(0, model.chunk_size());
  for (int step = 0; step < kWarmUpSteps; ++step) feeder.DecodeRun(rows);
  std::vector<double> times;
  for (int step = 0; step < model.chunk_size(); ++step) {
    times.push_back(feeder.DecodeRun(rows));
  }
  return Median(std::move(times));
}

FlatnessFigures MeasureFlatness(FlashModel& model, int64_t early,
                                int64_t late) {
  FLASH_CHECK(model.num_slots() >= 2);
  const int64_t chunk = model.chunk_size();
  FlatnessFigures figures = {.early = early / chunk * chunk,
                             .late = late / chunk * chunk};
  Feeder feeder(model);
  model.Reset(0);
  model.Reset(1);
  feeder.Prompt(0, figures.early);
  feeder.Prompt(1, figures.late);
  std::vector<double> early_times;
  std::vector<double> late_times;
  for (int64_t step = 0; step < std::max<int64_t>(2 * chunk, 500); ++step) {
    early_times.push_back(feeder.DecodeSlots(0, 1));
    late_times.push_back(feeder.DecodeSlots(1, 1));
  }
  figures.early_ms = Median(early_times);
  figures.late_ms = Median(late_times);
  return figures;
}

PromptFigures MeasurePrompt(FlashModel& model, int prompts, int64_t tokens,
                            const std::function<void()>& in_between) {
  FLASH_CHECK(prompts <= model.num_slots());
  Feeder feeder(model);
  const int64_t chunk = model.chunk_size();
  for (int slot = 0; slot < prompts; ++slot) model.Reset(slot);
  feeder.PromptChunks(prompts);
  std::vector<double> seconds;
  for (int64_t at = 0; at < tokens; at += chunk) {
    seconds.push_back(feeder.PromptChunks(prompts) / 1000);
    in_between();
  }
  const int64_t operations = PromptOperations(model.config(), chunk, 2 * chunk);
  const double median = Median(seconds);
  return {.tokens_per_second = prompts * static_cast<double>(chunk) / median,
          .gflops = prompts * static_cast<double>(operations) / median * 1e-9};
}

}  // namespace flash
