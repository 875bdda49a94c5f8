// How many rows of prompts the next step may have.

#ifndef SERVER_SCHEDULER_ROW_BUDGET_H_
#define SERVER_SCHEDULER_ROW_BUDGET_H_

#include <optional>

#include "server/scheduler/request.h"

namespace flash {

// A stream's gap between two tokens is the time of a step, of the prompts' rows
// in it too. This keeps that time at a target, by what earlier steps took:
//
//   time = base + row_time * rows of prompts
//
// `base` is the time of the decoding rows alone, as measured: by the steps that
// have no prompt in them, and while prompts wait, after kProbeInterval steps
// one (and one soon after the number of decoding outputs has changed much, and
// the first few) goes without them for this. `row_time` comes from the steps
// that have both. Both are means in which recent steps count most and no step
// counts for more than twice what was expected of it: one that the machine held
// up moves little, and a machine that has become slower is followed within some
// tens of steps.
//
// But for those steps prompts always have kMinRows, whatever the target, so
// that they never starve; and while nobody decodes there is no bound.
//
// What this answers decides when a row is run and never what comes of it: how a
// prompt is cut into runs changes no bits.
//
// Thread safety: one thread at a time.
class RowBudget {
 public:
  // Without a target of one's own: how many times as long as with the decoding
  // rows alone a step may be with prompts in it. They then have 1 - 1 / this of
  // the time.
  static constexpr double kAutoFactor = 2.4;

  static constexpr int kMinRows = 16;
  static constexpr int kProbeInterval = 32;

  // `target`: of a step's time; none: kAutoFactor * base.
  explicit RowBudget(std::optional<Clock::duration> target);

  // For a step in which so many outputs decode. INT_MAX: as many as there is
  // room for. 0: this step is to measure the others alone.
  int PromptRows(int decoders) const;

  // What a step took. One that had rows neither decoding nor of prompts does
  // not exist.
  void Record(int decoders, int prompt_rows, Clock::duration time);

 private:
  bool ProbeDue(int decoders) const;
  // Whether `base_` says little about so many rows.
  bool FarFromBase(int decoders) const;
  double row_time() const { return mixed_time_ / mixed_rows_; }
  void RecordBase(int decoders, double time);
  void RecordMixed(int prompt_rows, double time);

  const std::optional<double> target_;  // seconds, as all times here

  double base_ = 0;
  int base_rows_ = 0;  // decoding outputs of the last step without prompts
  int num_base_ = 0;   // such steps, up to as many as are believed

  // Of the steps with both: weighted means of what the prompts added, and of
  // their rows.
  double mixed_time_ = 0;
  double mixed_rows_ = 0;
  int num_mixed_ = 0;  // up to as many as are believed
  int most_rows_ = 0;  // that prompts have had beside decoding rows

  int since_probe_ = 0;  // steps with both since the last without prompts
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_ROW_BUDGET_H_
