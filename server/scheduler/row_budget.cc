#include "server/scheduler/row_budget.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>

namespace flash {
namespace {

// How much a new step counts.
constexpr double kBaseWeight = 0.25;
constexpr double kMixedWeight = 0.125;

// No step counts for more than so many times what was expected. (Less than
// expected is no accident: a machine is held up, never sped up.)
constexpr double kMostSurprise = 2;

// So many steps of either kind are taken as they are, since there is nothing to
// compare them with.
constexpr int kFirstSteps = 4;

// Between two steps that go without prompts, at the least.
constexpr int kMinProbeInterval = 8;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

RowBudget::RowBudget(std::optional<Clock::duration> target)
    : target_(target.has_value() ? std::optional(Seconds(*target))
                                 : std::nullopt) {}

int RowBudget::PromptRows(int decoders) const {
  if (decoders == 0) return std::numeric_limits<int>::max();
  if (ProbeDue(decoders)) return 0;
  // What has not been seen is guessed at from half as many rows or more.
  const int most = std::max(kMinRows, 2 * most_rows_);
  if (most_rows_ == 0) return most;
  const double room = target_.value_or(kAutoFactor * base_) - base_;
  if (room >= row_time() * most) return most;
  if (room <= 0) return kMinRows;  // a row may take no time at all
  return std::max(kMinRows, static_cast<int>(room / row_time()));
}

bool RowBudget::ProbeDue(int decoders) const {
  if (num_base_ < kFirstSteps || since_probe_ >= kProbeInterval) return true;
  return since_probe_ >= kMinProbeInterval && FarFromBase(decoders);
}

bool RowBudget::FarFromBase(int decoders) const {
  return 4 * std::abs(decoders - base_rows_) > base_rows_;
}

void RowBudget::Record(int decoders, int prompt_rows, Clock::duration time) {
  if (decoders == 0) return;
  if (prompt_rows == 0) {
    RecordBase(decoders, Seconds(time));
    since_probe_ = 0;
  } else {
    if (num_base_ > 0) RecordMixed(prompt_rows, Seconds(time));
    ++since_probe_;
  }
}

void RowBudget::RecordBase(int decoders, double time) {
  const bool far = FarFromBase(decoders);
  if (num_base_ < kFirstSteps) {
    // The very first may have had pages to fetch.
    base_ = far ? time : std::min(base_, time);
    ++num_base_;
  } else {
    // So many rows take something between as long and as much longer.
    const double in_proportion = base_ * decoders / base_rows_;
    time = std::min(time, std::max(base_, in_proportion) * kMostSurprise);
    base_ += (time - base_) * (far ? 1 : kBaseWeight);
  }
  base_rows_ = decoders;
}

void RowBudget::RecordMixed(int prompt_rows, double time) {
  if (num_mixed_ < kFirstSteps) {
    ++num_mixed_;
  } else {
    time = std::min(time, (base_ + row_time() * prompt_rows) * kMostSurprise);
  }
  mixed_time_ += kMixedWeight * (std::max(time - base_, 0.0) - mixed_time_);
  mixed_rows_ += kMixedWeight * (prompt_rows - mixed_rows_);
  most_rows_ = std::max(most_rows_, prompt_rows);
}

}  // namespace flash
