// Writes the files of a model directory, for tests.

#ifndef TESTS_REFERENCE_MODEL_WRITER_H_
#define TESTS_REFERENCE_MODEL_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "server/model/config.h"

namespace flash {

// A tensor to be written; the numbers are rounded to `type` (to nearest, ties
// to even) when they are.
struct TensorToWrite {
  std::string name;
  DataType type = DataType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<float> numbers;
};

// The text of a config.json that says what `config` says, every key written.
std::string ConfigJson(const ModelConfig& config);

// The bytes of a safetensors file with these tensors, one after the other. The
// header is not padded: its length, and so the tensors' alignment, is any.
std::string SafetensorsBytes(const std::vector<TensorToWrite>& tensors);

// A safetensors file whose header and data are whatever the test says.
std::string SafetensorsBytes(const std::string& header,
                             const std::string& data);

}  // namespace flash

#endif  // TESTS_REFERENCE_MODEL_WRITER_H_
