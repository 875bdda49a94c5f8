// The safetensors file format: eight bytes with the header's length, a header
// in JSON that says where each tensor lies, and the tensors' bytes.

#ifndef SERVER_MODEL_SAFETENSORS_H_
#define SERVER_MODEL_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tensor.h"

namespace flash {

// A tensor in memory that somebody else owns: row-major, little-endian, and not
// necessarily aligned to its type.
struct TensorView {
  DataType type = DataType::kFloat32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;

  int64_t num_elements() const {
    int64_t product = 1;
    for (const int64_t size : shape) product *= size;
    return product;
  }
  size_t num_bytes() const {
    return static_cast<size_t>(num_elements()) * SizeOf(type);
  }
};

using TensorMap = std::map<std::string, TensorView, std::less<>>;

// Returns the tensors of a safetensors file whose bytes are `file`; the views
// point into it. `file_name` is for the messages.
//
// Returns INVALID_ARGUMENT, in one sentence that names file and tensor, unless
// the header lies within the file and is well formed, every tensor is F32, F16
// or BF16 and has as many bytes as its shape says, and the tensors cover the
// rest of the file without overlap and without holes. Pure; any thread.
absl::StatusOr<TensorMap> ParseSafetensors(std::span<const std::byte> file,
                                           const std::string& file_name);

}  // namespace flash

#endif  // SERVER_MODEL_SAFETENSORS_H_
