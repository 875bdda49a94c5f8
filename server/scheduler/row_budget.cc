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

int RowBudget::PromptRows(int decode_rows) const {
  if (decode_rows == 0) return std::numeric_limits<int>::max();
  if (ProbeDue(decode_rows)) return 0;
  // What has not been seen is guessed at from half as many rows or more.
  const int most = std::max(kMinRows, 2 * most_rows_);
  if (most_rows_ == 0) return most;
  const double room = target_.value_or(kAutoFactor * base_) - base_;
  if (room >= row_time() * most) return most;
  return std::max(kMinRows, static_cast<int>(room / row_time()));
}

bool RowBudget::ProbeDue(int decode_rows) const {
  if (num_base_ < kFirstSteps || since_probe_ >= kProbeInterval) return true;
  return since_probe_ >= kMinProbeInterval && FarFromBase(decode_rows);
}

bool RowBudget::FarFromBase(int decode_rows) const {
  return 4 * std::abs(decode_rows - base_rows_) > base_rows_;
}

void RowBudget::Record(int decode_rows, int prompt_rows, Clock::duration time) {
  if (decode_rows == 0) return;
  if (prompt_rows == 0) {
    RecordBase(decode_rows, Seconds(time));
    since_probe_ = 0;
  } else {
    if (num_base_ > 0) RecordMixed(prompt_rows, Seconds(time));
    ++since_probe_;
  }
}

void RowBudget::RecordBase(int decode_rows, double time) {
  const bool far = FarFromBase(decode_rows);
  if (num_base_ < kFirstSteps) {
    // The very first may have had pages to fetch.
    base_ = far ? time : std::min(base_, time);
    ++num_base_;
  } else {
    // So many rows take something between as long and as much longer.
    const double in_proportion = base_ * decode_rows / base_rows_;
    time = std::min(time, std::max(base_, in_proportion) * kMostSurprise);
    base_ += (time - base_) * (far ? 1 : kBaseWeight);
  }
  base_rows_ = decode_rows;
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
