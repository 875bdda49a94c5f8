// Times whole steps of a model: decoding at several batch sizes, prompts, and
// what must not change with a text's length.

#ifndef TESTS_BENCH_STEP_BENCH_H_
#define TESTS_BENCH_STEP_BENCH_H_

#include <cstdint>
#include <vector>

#include "server/model/flash_model.h"

namespace flash {

// Milliseconds of many steps. Percentiles are those of the sorted times, no
// interpolation.
struct StepTimes {
  double median = 0;
  double p99 = 0;
  double p999 = 0;
  double max = 0;
};

struct DecodeFigures {
  int batch = 0;
  StepTimes step_ms;
  double tokens_per_second = 0;      // batch / mean step
  double cpu_seconds_per_token = 0;  // of all threads
};

struct FlatnessFigures {
  int64_t early = 0;  // positions
  int64_t late = 0;
  double early_ms = 0;  // median step from there on
  double late_ms = 0;
  double ratio() const { return late_ms / early_ms; }
};

// `batch` requests, one token each a step, their chunk offsets evenly spread,
// over `steps` steps. REQUIRES: the model has as many slots.
DecodeFigures MeasureDecode(FlashModel& model, int batch, int steps);

// One request, over whole chunks of single steps from a chunk's beginning on:
// its times with all folds and boundaries in them. At least `steps` steps.
StepTimes MeasureOneRequest(FlashModel& model, int steps);

// Two requests, one at the chunk that holds position `early`, one at that of
// `late`, which has really read so many tokens. They take turns, so that what
// else the machine does falls on both.
FlatnessFigures MeasureFlatness(FlashModel& model, int64_t early, int64_t late);

// Tokens per second of a prompt of `tokens`, in the largest runs there are.
double MeasurePrompt(FlashModel& model, int64_t tokens);

}  // namespace flash

#endif  // TESTS_BENCH_STEP_BENCH_H_
