#include "tests/bench/step_bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "kernels/check.h"

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

StepTimes Summarise(std::vector<double> times) {
  FLASH_CHECK(!times.empty());
  std::sort(times.begin(), times.end());
  const auto at = [&](double quantile) {
    const double index = quantile * static_cast<double>(times.size());
    return times[std::min(times.size() - 1, static_cast<size_t>(index))];
  };
  return {at(0.5), at(0.99), at(0.999), times.back()};
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

  // One token to each of the first `batch` slots; milliseconds.
  double Decode(int batch) { return DecodeSlots(0, batch); }

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

}  // namespace

DecodeFigures MeasureDecode(FlashModel& model, int batch, int steps) {
  FLASH_CHECK(batch <= model.num_slots());
  Feeder feeder(model);
  for (int slot = 0; slot < batch; ++slot) {
    model.Reset(slot);
    // A closed chunk behind each, and offsets from 0 to nearly C.
    feeder.Prompt(
        slot, model.chunk_size() + model.chunk_size() * int64_t{slot} / batch);
  }
  for (int step = 0; step < kWarmUpSteps; ++step) feeder.Decode(batch);
  std::vector<double> times;
  const double cpu_before = CpuSeconds();
  for (int step = 0; step < steps; ++step)
    times.push_back(feeder.Decode(batch));
  const double cpu = CpuSeconds() - cpu_before;
  const double total = std::accumulate(times.begin(), times.end(), 0.0);
  return {batch, Summarise(times), 1000.0 * batch * steps / total,
          cpu / batch / steps};
}

StepTimes MeasureOneRequest(FlashModel& model, int steps) {
  Feeder feeder(model);
  model.Reset(0);
  feeder.Prompt(0, model.chunk_size());
  const int chunk = model.chunk_size();
  std::vector<double> times;
  for (int step = 0; step < (steps + chunk - 1) / chunk * chunk; ++step) {
    times.push_back(feeder.Decode(1));
  }
  return Summarise(times);
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
  figures.early_ms = Summarise(early_times).median;
  figures.late_ms = Summarise(late_times).median;
  return figures;
}

double MeasurePrompt(FlashModel& model, int64_t tokens) {
  Feeder feeder(model);
  model.Reset(0);
  feeder.Prompt(0, model.chunk_size());
  const auto start = SteadyClock::now();
  feeder.Prompt(0, tokens);
  return 1000.0 * static_cast<double>(tokens) / MillisecondsSince(start);
}

}  // namespace flash
