// The CUDA kernels as cuda_backend.cc calls them, a file each. Every function
// puts its work into the stream and does not wait. All pointers are to device
// memory, those of the operands too.
//
// Each element of each result is one fixed expression of its inputs: how a sum
// is divided among threads depends on its length alone, never on the rows that
// share the launch.

#ifndef KERNELS_CUDA_KERNELS_H_
#define KERNELS_CUDA_KERNELS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/operands.h"

namespace flash::cuda {

// What the kernels tell of a row.
struct RowReport {
  uint32_t fault;       // not 0: it met a number that is not finite
  uint32_t num_values;  // positions whose values it read alone, in all layers
};

// The rows of a step on the device.
struct DeviceRows {
  const Row* rows = nullptr;
  const RowRun* runs = nullptr;
  RowReport* reports = nullptr;  // [B]
  int64_t num_rows = 0;
  int64_t num_runs = 0;

  bool operator==(const DeviceRows&) const = default;
};

// embed.cu. frequencies: embedding.frequencies on the device
cudaError_t Embed(const Embedding& embedding, const double* frequencies,
                  const DeviceRows& step, MatrixView<float> x,
                  cudaStream_t stream);

// `rounded` here and below: where a result is also put as a product with
// bfloat16 weights takes it, [B, Padded(D)]; null: nowhere.

// normalize.cu
cudaError_t Normalize(const Norm& norm, MatrixView<const float> x,
                      MatrixView<float> y, uint16_t* rounded,
                      cudaStream_t stream);

// shift_tokens.cu
cudaError_t ShiftTokens(const LayerState& state, const DeviceRows& step,
                        MatrixView<float> y, uint16_t* rounded,
                        cudaStream_t stream);

// rotary_angles.cu. frequencies: rotary.frequencies on the device
cudaError_t RotaryAngles(const Rotary& rotary, const double* frequencies,
                         const DeviceRows& step, MatrixView<float> cos,
                         MatrixView<float> sin, cudaStream_t stream);

struct AppendOperands {
  Attention attention;
  LayerState state;
  MatrixView<const float> cos;
  MatrixView<const float> sin;
  HeadRows heads;
  DeviceRows step;
  // heads.uvz, if it is yet to become silu(uvz); null if it is.
  float* before_silu = nullptr;

  bool operator==(const AppendOperands&) const = default;
};

// append_heads.cu
cudaError_t AppendHeads(const AppendOperands& operands, cudaStream_t stream);

// Some rows of one run, which share what they read.
struct RowTile {
  int32_t first_row = 0;
  int32_t num_rows = 0;
};

// The most rows of a tile.
inline constexpr int kTileRows = 8;

// Where `is_there`: the fold that a row does for itself before it reads U, of
// positions [first, last).
struct PutOff {
  int32_t first = 0;
  int32_t last = 0;
  bool is_there = false;
};

struct AttendOperands {
  Attention attention;
  LayerState state;
  HeadRows heads;
  DeviceRows step;
  const RowTile* singles = nullptr;  // tiles of one row
  int64_t num_singles = 0;
  const RowTile* tiles = nullptr;  // of up to kTileRows rows
  int64_t num_tiles = 0;
  const PutOff* put_off = nullptr;  // [B]
  MatrixView<float> weights;        // [B, Padded(C)], scratch
  MatrixView<float> gated;
  uint16_t* rounded = nullptr;  // `gated`

  bool operator==(const AttendOperands&) const = default;
};

// weigh.cu: fills `weights` with w_ij.
cudaError_t Weigh(const AttendOperands& operands, cudaStream_t stream);

// attend.cu: uses them.
cudaError_t Attend(const AttendOperands& operands, cudaStream_t stream);

// One fold of one layer, with the tensors of its slot.
struct FoldTask {
  const std::byte* lin_k = nullptr;
  const std::byte* value = nullptr;
  float* sum = nullptr;
  std::byte* u = nullptr;
  int32_t first = 0;
  int32_t last = 0;
  bool closes = false;
};

// What tasks that share a launch have in common.
struct FoldShape {
  int64_t query_key_size = 0;
  int64_t expanded_size = 0;
  int64_t chunk_size = 0;
  DataType cache = DataType::kFloat32;

  bool operator==(const FoldShape&) const = default;
};

// fold_chunks.cu. No two tasks are of one sum.
cudaError_t FoldChunks(const FoldShape& shape, const FoldTask* tasks,
                       int64_t num_tasks, cudaStream_t stream);

// find_faults.cu
cudaError_t FindFaults(MatrixView<const float> x, const DeviceRows& step,
                       cudaStream_t stream);

// gather_rows.cu. y has num rows.
cudaError_t GatherRows(const int32_t* rows, MatrixView<const float> x,
                       MatrixView<float> y, cudaStream_t stream);

// round_inputs.cu: the rows of x as a product with bfloat16 or int8 weights
// takes them. out: [rows, out_stride], out_stride = Padded(x.cols); scales:
// [rows], NaN where a number is not finite.
cudaError_t RoundToBFloat16(MatrixView<const float> x, uint16_t* out,
                            cudaStream_t stream);
cudaError_t RoundToInt8(MatrixView<const float> x, int8_t* out, float* scales,
                        cudaStream_t stream);

// finish_dense.cu: what follows a product.
//
// y = silu(y)
cudaError_t ApplySilu(MatrixView<float> y, cudaStream_t stream);

// What follows the sums of a product of int8 numbers.
struct Int8Sums {
  const int32_t* sums = nullptr;         // [rows, outputs]
  const float* x_scales = nullptr;       // [rows]
  const float* weight_scales = nullptr;  // [outputs]
  const float* bias = nullptr;           // [outputs]
  enum class Epilogue { kStore, kSilu, kAdd } epilogue = Epilogue::kStore;

  bool operator==(const Int8Sums&) const = default;
};
cudaError_t FinishInt8(const Int8Sums& sums, MatrixView<float> y,
                       cudaStream_t stream);

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_KERNELS_H_
