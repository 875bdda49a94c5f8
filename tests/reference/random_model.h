// Models that nobody has trained, for tests: settings drawn from all that the
// format has, and weights that keep every part of the network alive.

#ifndef TESTS_REFERENCE_RANDOM_MODEL_H_
#define TESTS_REFERENCE_RANDOM_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/tensor.h"
#include "server/model/config.h"

namespace flash {

// Settings for this seed: every value of every key turns up, sizes are small
// and mostly odd. Texts of 6 chunks, or of 128 tokens if that is more, are
// within max_length. The tokenizer is `none` or `bytes`, which need no file.
ModelConfig RandomConfig(uint64_t seed);

struct RandomModelOptions {
  uint64_t seed = 1;
  DataType type = DataType::kFloat32;  // of all tensors
  // The tensors that the format leaves open.
  bool uvz_bias = true;
  bool output_bias = true;
  bool lm_head_bias = true;
};

// Options for this seed: every type, each bias there or not.
RandomModelOptions RandomOptions(uint64_t seed);

// Writes config.json and model.safetensors into `directory`, in place of older
// ones; the same bytes for the same arguments. Activations are of the order of
// 1 in every layer and logits are spread by a few units: what a layer adds is
// measured with the Reference and its output scaled to that end.
absl::Status WriteRandomModel(const ModelConfig& config,
                              const RandomModelOptions& options,
                              const std::string& directory);

}  // namespace flash

#endif  // TESTS_REFERENCE_RANDOM_MODEL_H_
