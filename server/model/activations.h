// What the operations of a step write and read, beside weights and states.

#ifndef SERVER_MODEL_ACTIVATIONS_H_
#define SERVER_MODEL_ACTIVATIONS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/model/config.h"

namespace flash {

// Matrices of the largest step, allocated once; Rows() makes those of a step.
// B rows of a step, R rows whose logits are wanted.
struct Activations {
  MatrixView<float> x;         // [B, D] the residual stream
  MatrixView<float> y;         // [B, D] normed
  MatrixView<float> uvz;       // [B, 2 Padded(E) + Padded(S)]
  MatrixView<float> quad_q;    // [B, S]
  MatrixView<float> lin_q;     // [B, S]
  MatrixView<float> gated;     // [B, E]
  MatrixView<float> cos, sin;  // [B, size / 2]
  MatrixView<float> chosen;    // [R, D] x of the rows whose logits are wanted
  MatrixView<float> logits;    // [R, Padded(V)]

  // The same memory for `rows` rows and `logits_rows` wanted ones.
  Activations Rows(int64_t rows, int64_t logits_rows) const;

  // Activations for at most so many rows, in memory that is put into `memory`.
  // RESOURCE_EXHAUSTED if there is not enough.
  static absl::StatusOr<Activations> Allocate(Backend& backend,
                                              const ModelConfig& config,
                                              int64_t rows, int64_t logits_rows,
                                              std::unique_ptr<Buffer>& memory);
};

}  // namespace flash

#endif  // SERVER_MODEL_ACTIVATIONS_H_
