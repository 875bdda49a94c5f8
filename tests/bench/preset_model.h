// Random models of a given shape, made in memory: their speed is that of a
// trained model, since no step's work depends on the weights' values.

#ifndef TESTS_BENCH_PRESET_MODEL_H_
#define TESTS_BENCH_PRESET_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/model/config.h"
#include "server/model/weights.h"

namespace flash {

// A model's settings and bfloat16 weights.
class PresetModel {
 public:
  // The names that Make() knows, for people: "112m, 500m, tiny".
  static std::string KnownNames();

  // "112m": the paper's shape, 24 layers of d 768, e 1536, s 128, C 256, with a
  // tied vocabulary of 32,000. "500m": a card's, 72 layers of d 1024, e 2048,
  // s 128, C 512, the same vocabulary. "tiny": for a quick look.
  // NOT_FOUND if there is no such preset.
  static absl::StatusOr<std::unique_ptr<PresetModel>> Make(
      const std::string& name);

  // Writes it as a model directory, which is made if need be.
  absl::Status Write(const std::string& directory) const;

  const ModelConfig& config() const { return config_; }
  const CheckpointWeights& weights() const { return weights_; }

 private:
  PresetModel() = default;

  // A tensor of numbers of about the given size, or constant ones.
  TensorView Random(std::vector<int64_t> shape, float size);
  TensorView Constant(std::vector<int64_t> shape, float value);
  TensorView Take(std::vector<int64_t> shape);
  void MakeWeights();

  ModelConfig config_;
  CheckpointWeights weights_;
  std::vector<std::unique_ptr<std::vector<uint16_t>>> memory_;
  uint64_t random_ = 0x9e3779b97f4a7c15;
};

}  // namespace flash

#endif  // TESTS_BENCH_PRESET_MODEL_H_
