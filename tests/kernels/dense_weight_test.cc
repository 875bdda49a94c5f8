// How weights are packed, and which are refused.

#include "kernels/cpu/dense_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "tests/kernels/backend_fixture.h"
#include "tests/kernels/test_weights.h"

namespace flash {
namespace {

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16,
                               DataType::kBFloat16};
constexpr DataType kStoredTypes[] = {DataType::kFloat32, DataType::kBFloat16};
constexpr DataType kAllStoredTypes[] = {DataType::kFloat32, DataType::kBFloat16,
                                        DataType::kInt8};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// The panels of `weights`, as kernel_table.h describes them.
std::vector<float> ExpectedPanels(const TestWeights& weights) {
  const DenseSource source = weights.source();
  const int64_t group = source.stored == DataType::kFloat32 ? 1 : 2;
  const int64_t inputs = (source.cols + group - 1) / group * group;
  const int64_t panels =
      (weights.padded_outputs() + cpu::kPanel - 1) / cpu::kPanel;
  std::vector<float> numbers(panels * cpu::kPanel * inputs, 0);
  for (const TestWeights::Output& output : weights.outputs()) {
    const int64_t panel = output.column / cpu::kPanel;
    const int64_t lane = output.column % cpu::kPanel;
    for (int64_t k = 0; k < source.cols; ++k) {
      const int64_t line = panel * inputs / group + k / group;
      numbers[(line * cpu::kPanel + lane) * group + k % group] =
          static_cast<float>(output.weights[k]);
    }
  }
  return numbers;
}

// The numbers in memory that holds panels.
std::vector<float> PackedPanels(const DenseSource& source, int num_threads) {
  ThreadPool pool(num_threads);
  const Lines memory(cpu::PanelBytes(source), 0);
  EXPECT_TRUE(cpu::PackPanels(source, pool, memory.data()).ok());
  const size_t size = SizeOf(source.stored);
  std::vector<float> numbers(cpu::PanelBytes(source) / size, 0);
  for (size_t n = 0; n < numbers.size(); ++n) {
    std::memcpy(reinterpret_cast<std::byte*>(&numbers[n]) + 4 - size,
                memory.data() + n * size, size);
  }
  return numbers;
}

TEST(DenseWeightTest, StandsInPanels) {
  RandomSource random(1);
  for (const DataType type : kTypes) {
    for (const DataType stored : kStoredTypes) {
      for (const int64_t cols : {1, 2, 17, 32}) {
        const TestWeights weights({.segments = {1, 70, 16, 33},
                                   .cols = cols,
                                   .type = type,
                                   .stored = stored},
                                  random);
        for (const int num_threads : {1, 2, 3}) {
          EXPECT_EQ(PackedPanels(weights.source(), num_threads),
                    ExpectedPanels(weights));
        }
      }
    }
  }
}

TEST(DenseWeightTest, WidensTheSmallestNumbersExactly) {
  RandomSource random(1);
  TestWeights half({.segments = {1}, .cols = 2, .type = DataType::kFloat16},
                   random);
  half.Set(0, 0, 0x1p-24f);  // denormal, in float16
  half.Set(0, 1, -0x3p-24f);
  EXPECT_EQ(PackedPanels(half.source(), 1)[0], 0x1p-24f);
  EXPECT_EQ(PackedPanels(half.source(), 1)[cpu::kPanel], -0x3p-24f);
}

TEST(DenseWeightTest, RoundsToTheNearestEvenBFloat16) {
  RandomSource random(1);
  const std::vector<std::pair<float, float>> cases = {
      {1.0f, 1.0f},
      {1 + 0x1p-8f, 1.0f},                      // a tie
      {1 + 0x3p-8f, 1 + 0x1p-6f},               // a tie
      {1 + 0x1p-8f + 0x1p-20f, 1 + 0x1p-7f},    // above one
      {-1 - 0x3p-8f + 0x1p-20f, -1 - 0x1p-7f},  // below one
      {0x1.fffp0f, 2.0f},                       // into the next exponent
      {0x1.fep127f, 0x1.fep127f},               // the largest
  };
  TestWeights weights({.segments = {1},
                       .cols = static_cast<int64_t>(cases.size()),
                       .stored = DataType::kBFloat16},
                      random);
  for (size_t k = 0; k < cases.size(); ++k) weights.Set(0, k, cases[k].first);
  const std::vector<float> packed = PackedPanels(weights.source(), 1);
  for (size_t k = 0; k < cases.size(); ++k) {
    EXPECT_EQ(packed[k / 2 * 2 * cpu::kPanel + k % 2], cases[k].second)
        << cases[k].first;
  }
}

// The bytes of panels of int8 weights.
std::vector<std::byte> ExpectedInt8Panels(const TestWeights& weights) {
  const int64_t cols = weights.source().cols;
  std::vector<std::byte> bytes(cpu::PanelBytes(weights.source()));
  for (const TestWeights::Output& output : weights.outputs()) {
    std::byte* panel =
        bytes.data() + output.column / cpu::kPanel * cpu::Int8PanelBytes(cols);
    const int64_t lane = output.column % cpu::kPanel;
    double largest = 0;
    for (const double weight : output.weights) {
      largest = std::max(largest, std::fabs(weight));
    }
    const float scale = static_cast<float>(largest) / 127;
    int32_t offset = 0;
    for (int64_t k = 0; k < cols; ++k) {
      const float weight = static_cast<float>(output.weights[k]);
      const auto rounded =
          static_cast<int8_t>(std::nearbyint(weight * (1 / scale)));
      panel[sizeof(cpu::Int8PanelHead) + (k / 4 * cpu::kPanel + lane) * 4 +
            k % 4] = static_cast<std::byte>(rounded);
      offset -= 128 * rounded;
    }
    auto* head = reinterpret_cast<cpu::Int8PanelHead*>(panel);
    head->scale[lane] = scale;
    head->offset[lane] = offset;
  }
  return bytes;
}

TEST(DenseWeightTest, StandsInPanelsWithTheirHeadsWhereItIsInt8) {
  RandomSource random(1);
  for (const DataType type : kTypes) {
    for (const int64_t cols : {1, 3, 4, 18, 33}) {
      const TestWeights weights({.segments = {1, 70, 16, 33},
                                 .cols = cols,
                                 .type = type,
                                 .stored = DataType::kInt8},
                                random);
      ThreadPool pool(2);
      const Lines memory(cpu::PanelBytes(weights.source()), 0);
      ASSERT_TRUE(cpu::PackPanels(weights.source(), pool, memory.data()).ok());
      EXPECT_EQ(
          std::vector<std::byte>(
              memory.data(), memory.data() + cpu::PanelBytes(weights.source())),
          ExpectedInt8Panels(weights));
    }
  }
}

class MakeDenseTest : public BackendTest {
 protected:
  // Whether a matrix with this weight in any one place is accepted.
  bool Accepts(float weight, DataType type, DataType stored) {
    const TestBackend backend = Make();
    int accepted = 0;
    const std::vector<std::pair<int, int>> places = {
        {0, 0}, {69, 16}, {68, 15}, {63, 1}, {64, 0}};
    for (const auto& [row, col] : places) {
      TestWeights weights(
          {.segments = {70, 3}, .cols = 17, .type = type, .stored = stored},
          random_);
      weights.Set(row, col, weight);
      const auto dense = backend->MakeDense(weights.source());
      EXPECT_TRUE(dense.ok() || absl::IsInvalidArgument(dense.status()));
      accepted += dense.ok();
    }
    EXPECT_TRUE(accepted == 0 || accepted == 5) << accepted;
    return accepted > 0;
  }

  RandomSource random_{1};
};

TEST_P(MakeDenseTest, RefusesWeightsThatAreNotFinite) {
  for (const DataType type : kTypes) {
    for (const DataType stored : kAllStoredTypes) {
      for (const float fault : {std::nanf(""), kInfinity, -kInfinity}) {
        EXPECT_FALSE(Accepts(fault, type, stored)) << fault;
      }
    }
  }
}

TEST_P(MakeDenseTest, RefusesWeightsThatOverflowInTheStoredType) {
  EXPECT_TRUE(Accepts(kLargest, DataType::kFloat32, DataType::kFloat32));
  EXPECT_FALSE(Accepts(kLargest, DataType::kFloat32, DataType::kBFloat16));
  EXPECT_FALSE(Accepts(-0x1.ffp127f, DataType::kFloat32, DataType::kBFloat16));
  EXPECT_TRUE(Accepts(0x1.fep127f, DataType::kFloat32, DataType::kBFloat16));
  EXPECT_TRUE(Accepts(-0x1.fep127f, DataType::kBFloat16, DataType::kFloat32));
  EXPECT_TRUE(Accepts(kLargest, DataType::kFloat32, DataType::kInt8));
}

TEST_P(MakeDenseTest, RefusesANaNWhoseUpperHalfIsAnInfinity) {
  const uint32_t bits = 0x7f800001;
  float nan;
  std::memcpy(&nan, &bits, sizeof(nan));
  EXPECT_FALSE(Accepts(nan, DataType::kFloat32, DataType::kFloat32));
  EXPECT_FALSE(Accepts(nan, DataType::kFloat32, DataType::kBFloat16));
  EXPECT_FALSE(Accepts(nan, DataType::kFloat32, DataType::kInt8));
}

TEST_P(MakeDenseTest, SaysHowMuchAStepReads) {
  const TestBackend backend = Make();
  const auto bytes = [&](DataType stored) {
    const TestWeights weights(
        {.segments = {70, 3}, .cols = 17, .stored = stored}, random_);
    return (*backend->MakeDense(weights.source()))->bytes();
  };
  if (is_on_card()) {
    // 80 + 16 outputs of 32 inputs, a bias and a scale for each output.
    EXPECT_EQ(bytes(DataType::kBFloat16), 96u * (32 * 2 + 4));
    EXPECT_EQ(bytes(DataType::kInt8), 96u * (32 + 4 + 4));
    return;
  }
  // 80 + 16 outputs in two panels; 17 inputs in nine pairs, in five quads with
  // a scale and an offset for each output.
  EXPECT_EQ(bytes(DataType::kBFloat16), 2u * 64 * 18 * 2);
  EXPECT_EQ(bytes(DataType::kInt8), 2u * 64 * (20 + 4 + 4));
}

INSTANTIATE_TEST_SUITE_P(Backends, MakeDenseTest, EveryBackend(), BackendName);

}  // namespace
}  // namespace flash
