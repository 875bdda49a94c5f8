// The bytes of a step, which the benchmark divides by the machine's bandwidth,
// against a count by hand: the preset "tiny" with bfloat16 weights and cache.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "server/model/flash_model.h"
#include "tests/bench/preset_model.h"

namespace flash {
namespace {

// Sizes of the preset, in numbers.
constexpr int64_t kLayers = 2;
constexpr int64_t kD = 64;
constexpr int64_t kE = 128;
constexpr int64_t kS = 128;
constexpr int64_t kChunk = 32;
constexpr int64_t kVocab = 256;
constexpr int64_t kBf16 = 2;  // bytes
constexpr int64_t kF32 = 4;

constexpr int64_t kWeights =
    (kLayers * ((2 * kE + kS) * kD + kD * kE) + kVocab * kD) * kBf16;
// quad_k, lin_k and v of one token.
constexpr int64_t kAppended = (kS + kS + kE) * kBf16;
constexpr int64_t kU = kS * kE * kBf16;
constexpr int64_t kSumTwice = 2 * kS * kE * kF32;

class StepBytesTest : public testing::Test {
 protected:
  // With this bias on every score, all weights are positive or none is.
  void Make(float bias) {
    preset_ = *PresetModel::Make("tiny");
    CheckpointWeights weights = preset_->weights();
    bias_.assign(2 * kChunk - 1, bias);
    for (LayerTensors& layer : weights.layers) {
      layer.relative_bias =
          TensorView{.type = DataType::kFloat32,
                     .shape = {2 * kChunk - 1},
                     .data = reinterpret_cast<const std::byte*>(bias_.data())};
    }
    backend_ = *MakeCpuBackend(pool_, "auto");
    model_ = *FlashModel::Create(*backend_, preset_->config(), weights,
                                 {.weights = DataType::kBFloat16,
                                  .cache = DataType::kBFloat16,
                                  .slots = 2,
                                  .max_rows = static_cast<int>(kChunk)});
    model_->Reset(0);
  }

  // Feeds tokens one by one and returns the bytes of the last step.
  int64_t Decode(int64_t tokens) {
    const int32_t id = 7;
    const flash::Run run = {0, {&id, 1}, LogitsWanted::kLast};
    std::vector<RunResult> results;
    for (int64_t n = 0; n < tokens; ++n) {
      EXPECT_TRUE(model_->Step({&run, 1}, results).ok());
    }
    return model_->step_bytes();
  }

  ThreadPool pool_{2};
  std::unique_ptr<PresetModel> preset_;
  std::vector<float> bias_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<FlashModel> model_;
};

TEST_F(StepBytesTest, AreTheWeightsOnceAndWhatTheRequestReads) {
  Make(1e3f);
  // The seventh position of the second chunk; nothing is folded in this step.
  EXPECT_EQ(Decode(kChunk + 7),
            kWeights + kLayers * (kAppended + kU + 7 * (kS + kE) * kBf16));
}

TEST_F(StepBytesTest, LeaveOutUWhileThereIsNone) {
  Make(1e3f);
  EXPECT_EQ(Decode(5),
            kWeights + kLayers * (kAppended + 5 * (kS + kE) * kBf16));
}

TEST_F(StepBytesTest, LeaveOutTheValuesWhoseWeightIsZero) {
  Make(-1e3f);
  EXPECT_EQ(Decode(kChunk + 7),
            kWeights + kLayers * (kAppended + kU + 7 * kS * kBf16));
}

TEST_F(StepBytesTest, HaveTheFoldsInThem) {
  Make(1e3f);
  // The chunk's last position: layer 0 folds it, the only one that it has left,
  // and writes U anew; layer 1 waits.
  EXPECT_EQ(Decode(2 * kChunk),
            kWeights + kLayers * (kAppended + kU + kChunk * (kS + kE) * kBf16) +
                (kS + kE) * kBf16 + kSumTwice + kU);
  // The next chunk's first: layer 1 makes U for itself, of the sum and three
  // positions.
  EXPECT_EQ(Decode(1), kWeights + kLayers * (kAppended + (kS + kE) * kBf16) +
                           kU + kSumTwice / 2 + 3 * (kS + kE) * kBf16);
  // It writes U in the sixth step, which also ends its first block.
  Decode(4);
  EXPECT_EQ(Decode(1), kWeights +
                           kLayers * (kAppended + kU + 6 * (kS + kE) * kBf16) +
                           3 * (kS + kE) * kBf16 + kSumTwice + kU +
                           6 * (kS + kE) * kBf16 + kSumTwice);
}

TEST_F(StepBytesTest, CountWhatTheRowsOfARunShareOnce) {
  Make(1e3f);
  Decode(kChunk);
  const std::vector<int32_t> ids(5, 7);
  const flash::Run run = {0, ids, LogitsWanted::kLast};
  std::vector<RunResult> results;
  ASSERT_TRUE(model_->Step({&run, 1}, results).ok());
  // Layer 1 folds what it has left of the chunk before: its last block ended
  // three positions before that.
  EXPECT_EQ(model_->step_bytes(),
            kWeights + kLayers * (5 * kAppended + kU + 5 * (kS + kE) * kBf16) +
                3 * (kS + kE) * kBf16 + kSumTwice + kU);
}

}  // namespace
}  // namespace flash
