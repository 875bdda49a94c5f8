// The tensors of a checkpoint by their role in the network, after checking that
// they are exactly those, in the shapes, that the model's settings ask for.

#ifndef SERVER_MODEL_WEIGHTS_H_
#define SERVER_MODEL_WEIGHTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/model/checkpoint.h"
#include "server/model/config.h"
#include "server/model/safetensors.h"

namespace flash {

// V, d, e, s: as in config.h. H = config.num_heads(), n = bias.length.
struct LayerTensors {
  std::optional<TensorView> norm_weight;    // [1] for scale_norm, else [d]
  std::optional<TensorView> norm_bias;      // [d]
  TensorView uvz_weight;                    // [2e + s, d]: u, v, z
  std::optional<TensorView> uvz_bias;       // [2e + s]
  TensorView head_scale;                    // [H, s]
  TensorView head_offset;                   // [H, s]
  std::optional<TensorView> relative_bias;  // t5 [num_buckets], toeplitz [2n-1]
  std::optional<TensorView> relative_bias_a;  // rope_toeplitz [s]
  std::optional<TensorView> relative_bias_b;  // rope_toeplitz [s]
  TensorView output_weight;                   // [d, e]
  std::optional<TensorView> output_bias;      // [d]
};

struct CheckpointWeights {
  TensorView embedding;                       // [V, d]
  std::optional<TensorView> position_scale;   // [1]
  std::optional<TensorView> position_weight;  // [max_length, d]
  std::vector<LayerTensors> layers;
  std::optional<TensorView> final_norm_weight;  // as norm_weight
  std::optional<TensorView> final_norm_bias;    // [d]
  std::optional<TensorView> lm_head_weight;     // [V, d]; absent if tied
  std::optional<TensorView> lm_head_bias;       // [V]
};

// Returns views of the tensors that `config` asks for. Returns INVALID_ARGUMENT
// if one is missing, superfluous or misshapen, naming the tensor, the shape
// expected and the shape found. Reads no tensor: see CheckFinite().
// The views are valid as long as `checkpoint`.
absl::StatusOr<CheckpointWeights> CheckWeights(const ModelConfig& config,
                                               const Checkpoint& checkpoint);

// Returns INVALID_ARGUMENT, naming the tensor and the element, if one is an
// infinity or a NaN. Reads the whole tensor, about as fast as memory is.
// Pure; any thread.
absl::Status CheckFinite(const std::string& name, const TensorView& tensor);

// The elements in order, widened exactly. Pure; any thread.
std::vector<float> ToFloat32(const TensorView& tensor);

// Returns the layer's bias vector: bias[δ] for 0 <= δ < chunk_size, computed in
// double precision and rounded once; empty if the bias type is none. Returns
// INVALID_ARGUMENT if an element is not a finite float32.
absl::StatusOr<std::vector<float>> BiasVector(const ModelConfig& config,
                                              const CheckpointWeights& weights,
                                              int64_t layer);

}  // namespace flash

#endif  // SERVER_MODEL_WEIGHTS_H_
