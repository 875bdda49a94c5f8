// The FLASH network, written once against Backend: format steps 1 to 3.

#ifndef SERVER_MODEL_NETWORK_H_
#define SERVER_MODEL_NETWORK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/model/activations.h"
#include "server/model/config.h"
#include "server/model/decode_state.h"
#include "server/model/weights.h"

namespace flash {

// Folds of each layer at one point of a step.
struct FoldPlan {
  std::vector<Fold> folds;     // of layer 0, then of layer 1 ...
  std::vector<int32_t> begin;  // [L + 1]: where each layer's begin

  std::span<const Fold> Of(size_t layer) const {
    return std::span(folds).subspan(begin[layer],
                                    begin[layer + 1] - begin[layer]);
  }
};

// What one step runs.
struct NetworkStep {
  StepRows rows;
  const FoldPlan& folds_before;   // before the layer's rows
  const FoldPlan& folds_put_off;  // not made in this step: see Attend()
  const FoldPlan& folds_after;
  std::span<const int32_t> logits_rows;  // the rows whose logits are wanted
};

// The weights on the device and the order of the operations.
//
// Thread safety: one thread at a time.
class Network {
 public:
  struct Options {
    DataType stored = DataType::kFloat32;  // of the dense weights
    int64_t max_rows = 1;                  // of a step
    int64_t max_logits_rows = 1;
  };

  // Moves the weights to the device. INVALID_ARGUMENT if one is not finite;
  // RESOURCE_EXHAUSTED if there is not enough memory. The views in `weights`
  // are not used after it returns. REQUIRES: `backend` outlives the network.
  static absl::StatusOr<std::unique_ptr<Network>> Create(
      Backend& backend, const ModelConfig& config,
      const CheckpointWeights& weights, const Options& options);

  // Runs the rows of `step`; their states advance, but for DecodeStates'
  // positions, which are the caller's. Returns the wanted logits, [rows, V],
  // readable until the next Run(). faults: one for each row, see
  // Backend::EndStep().
  absl::StatusOr<MatrixView<const float>> Run(const NetworkStep& step,
                                              const DecodeStates& states,
                                              std::span<uint8_t> faults);

  // Folds, between two steps.
  absl::Status Fold(const FoldPlan& plan, const DecodeStates& states);

  // What the last step moved: Backend::StepBytes().
  int64_t step_bytes() const { return backend_.StepBytes(); }

  // What a step reads of the weights.
  size_t weight_bytes() const;

 private:
  struct Layer {
    Norm norm;
    std::unique_ptr<Dense> uvz;
    Attention attention;
    std::unique_ptr<Dense> output;
  };
  friend class NetworkLoader;  // network_loader.cc: fills the members below

  Network(Backend& backend, const ModelConfig& config)
      : backend_(backend), config_(config) {}

  // Residual stream and layer in, residual stream out.
  void RunLayer(size_t index, const NetworkStep& step, const LayerState& state,
                const Activations& a);

  Backend& backend_;
  const ModelConfig config_;
  std::vector<std::unique_ptr<Buffer>> memory_;  // what the structs point into

  Embedding embedding_;
  std::vector<double> sinusoid_frequencies_;
  Rotary rotary_;
  std::vector<double> rotary_frequencies_;
  std::vector<Layer> layers_;
  Norm final_norm_;
  std::unique_ptr<Dense> lm_head_;

  Activations activations_;  // of the largest step
};

}  // namespace flash

#endif  // SERVER_MODEL_NETWORK_H_
