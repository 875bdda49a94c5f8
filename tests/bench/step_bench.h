// Times whole steps of a model: decoding at several batch sizes, prompts, and
// what must not change with a text's length.

#ifndef TESTS_BENCH_STEP_BENCH_H_
#define TESTS_BENCH_STEP_BENCH_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "server/model/flash_model.h"

namespace flash {

// Milliseconds of many steps. Percentiles are those of the sorted times, no
// interpolation.
//
// Requests whose chunk offsets are evenly spread do the same work again after
// chunk / batch steps. `max_to_median` is about that work: of each step of the
// period the median of its repetitions, and of these the largest divided by the
// median. What else the machine does is in the other figures, and not in it.
struct StepTimes {
  double median = 0;
  double p99 = 0;
  double p999 = 0;
  double max = 0;
  double max_to_median = 0;
};

struct DecodeFigures {
  int batch = 0;
  StepTimes step_ms;
  double step_ms_max_in_phase = 0;   // all requests at a chunk's end at once
  double tokens_per_second = 0;      // batch / mean step
  double cpu_seconds_per_token = 0;  // of all threads
  double bytes_per_step = 0;         // mean of Backend::StepBytes()
  double gbps = 0;                   // mean bytes / median step
};

// `batch` requests, one token each a step, their chunk offsets evenly spread,
// over at least `steps` steps and several periods. Calls `in_between` between
// them now and then. REQUIRES: the model has as many slots.
DecodeFigures MeasureDecode(FlashModel& model, int batch, int steps,
                            const std::function<void()>& in_between);

// One request over `chunks` whole chunks of single steps. Calls
// `in_between(n)` after every n of them, which may take as long.
StepTimes MeasureOneRequest(FlashModel& model, int chunks,
                            const std::function<void(int)>& in_between);

// Median steps of one request at about positions 1,000, 100,000 and 1,000,000,
// which it has jumped to. They take turns, so that what else the machine does
// falls on all. REQUIRES: three slots.
std::array<double, 3> MeasureFarPositions(FlashModel& model);

struct FlatnessFigures {
  int64_t early = 0;  // positions
  int64_t late = 0;
  double early_ms = 0;  // median step from there on
  double late_ms = 0;
  double ratio() const { return late_ms / early_ms; }
};

// One request, `rows` tokens a step with the logits after each: what a step
// costs that verifies rows - 1 drafted tokens. The median, in milliseconds.
double MeasureRuns(FlashModel& model, int rows);

// Two requests, one at the chunk that holds position `early`, one at that of
// `late`, which has really read so many tokens. They take turns.
FlatnessFigures MeasureFlatness(FlashModel& model, int64_t early, int64_t late);

struct PromptFigures {
  double tokens_per_second = 0;
  double gflops = 0;  // PromptOperations() a second
};

// `prompts` prompts side by side, of `tokens` tokens each behind a first chunk,
// a chunk of each in a step (or in several, where its rows are too few) and
// `in_between` between the chunks, whose median counts. REQUIRES: the model has
// as many slots, and rows for one token of each.
PromptFigures MeasurePrompt(FlashModel& model, int prompts, int64_t tokens,
                            const std::function<void()>& in_between);

}  // namespace flash

#endif  // TESTS_BENCH_STEP_BENCH_H_
