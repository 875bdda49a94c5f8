// ShiftTokens(): each row gets the first half of the one before it, whether
// that came in this step or in an earlier one.

#include <algorithm>
#include <vector>

#include "tests/kernels/random_layer.h"

namespace flash {
namespace {

constexpr int kNumSlots = 5;
constexpr int kNumPositions = 200;

// The normed rows of all positions of some slots, and what becomes of them.
class ShiftedText {
 public:
  explicit ShiftedText(int64_t width)
      : width_(width), half_((width + 1) / 2), slots_(MakeSlots(width)) {
    RandomSource random(width);
    for (int slot = 0; slot < kNumSlots; ++slot) {
      text_.push_back(Matrix::Random(kNumPositions, width, random));
    }
  }

  // One step: the next `num_rows[n]` rows of slot `slots[n]`.
  void Run(Backend& backend, const std::vector<int>& slots,
           const std::vector<int>& num_rows) {
    Step step;
    for (size_t n = 0; n < slots.size(); ++n) {
      step.runs.push_back({.first_row = static_cast<int32_t>(step.rows.size()),
                           .num_rows = num_rows[n]});
      for (int row = 0; row < num_rows[n]; ++row) {
        step.rows.push_back({.slot = slots[n], .position = next_[slots[n]]++});
      }
    }
    Matrix y(static_cast<int64_t>(step.rows.size()), width_);
    for (size_t n = 0; n < step.rows.size(); ++n) {
      const Row& row = step.rows[n];
      std::copy_n(text_[row.slot].Row(row.position), Padded(width_), y.Row(n));
    }
    backend.BeginStep(step.view());
    backend.ShiftTokens(slots_.state(), y.view());
    for (size_t n = 0; n < step.rows.size(); ++n) {
      ExpectShifted(step.rows[n], y.Row(n));
    }
    y.ExpectIntact();
  }

  // The slot's last `num_rows` rows have never been; other ones come instead.
  void TakeBack(int slot, int num_rows) {
    RandomSource random(next_[slot]);
    for (int row = 0; row < num_rows; ++row) {
      const Matrix other = Matrix::Random(1, width_, random);
      std::copy_n(other.Row(0), Padded(width_), text_[slot].Row(--next_[slot]));
    }
  }

  std::vector<std::byte> Bytes(int slot) const { return slots_.Bytes(slot); }

 private:
  static Slots MakeSlots(int64_t width) {
    const Attention attention = {
        .query_key_size = 1, .expanded_size = 1, .chunk_size = 1};
    return Slots(attention, DataType::kFloat32, kNumSlots, kNaNs, width);
  }

  void ExpectShifted(const Row& row, const float* y) const {
    for (int64_t c = 0; c < Padded(width_); ++c) {
      const int64_t from = c < half_ ? row.position - 1 : row.position;
      const float expected = from < 0 ? 0 : text_[row.slot].Row(from)[c];
      EXPECT_EQ(y[c], expected) << "slot " << row.slot << ", position "
                                << row.position << ", column " << c;
    }
  }

  const int64_t width_;
  const int64_t half_;
  Slots slots_;
  std::vector<Matrix> text_;
  int64_t next_[kNumSlots] = {};
};

class ShiftTokensTest : public BackendTest {};

TEST_P(ShiftTokensTest, GivesEachRowTheHalfOfTheTokenBeforeIt) {
  const TestBackend backend = Make();
  for (const int64_t width : {1, 2, 3, 16, 17, 31, 32, 33, 50}) {
    ShiftedText text(width);
    text.Run(*backend, {0}, {5});
    text.Run(*backend, {0}, {1});
    text.Run(*backend, {0}, {14});
  }
}

TEST_P(ShiftTokensTest, GoesOnFromARowThatStaysWhenLaterOnesAreTakenBack) {
  const TestBackend backend = Make();
  for (const int most : {1, 2, 7, static_cast<int>(kShiftRows) - 1}) {
    ShiftedText text(33);
    text.Run(*backend, {0, 1}, {1, 3});
    for (int taken_back = 0; taken_back <= most; ++taken_back) {
      text.Run(*backend, {0}, {most});
      text.TakeBack(0, taken_back);
      text.Run(*backend, {0, 1}, {1, 1});
    }
  }
}

TEST_P(ShiftTokensTest, KeepsTheSlotsOfAStepApart) {
  const TestBackend backend = Make();
  ShiftedText text(17);
  text.Run(*backend, {3, 0, 1, 2, 4}, {1, 4, 2, 1, 7});
  text.Run(*backend, {4}, {1});
  text.Run(*backend, {0, 4, 3}, {1, 1, 1});
  text.Run(*backend, {1, 3, 4, 2, 0}, {9, 2, 1, 1, 3});
}

TEST_P(ShiftTokensTest, LeavesOtherSlotsAlone) {
  const TestBackend backend = Make();
  ShiftedText text(33);
  const std::vector<std::byte> before = text.Bytes(1);
  text.Run(*backend, {0, 2}, {3, 2});
  EXPECT_EQ(text.Bytes(1), before);
}

INSTANTIATE_TEST_SUITE_P(Backends, ShiftTokensTest, EveryBackend(),
                         BackendName);

}  // namespace
}  // namespace flash
