// The CPU kernels of one instruction set: what cpu_backend.cc divides among
// threads. A kernel does one task; which rows and columns a task has changes no
// bit of the result.

#ifndef KERNELS_CPU_KERNEL_TABLE_H_
#define KERNELS_CPU_KERNEL_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/operands.h"

namespace flash::cpu {

// Outputs of a dense product that are packed together: weights are stored
// [panel][input][kPanel], bfloat16 ones [panel][input / 2][kPanel][2], int8
// ones [panel][input / 4][kPanel][4] with a head before each panel.
inline constexpr int64_t kPanel = 64;

// What belongs to the outputs of one panel of int8 weights.
struct Int8PanelHead {
  float scale[kPanel];
  // -128 times the sum of the output's weights, modulo 2^32: what the sum
  // begins with where inputs are stored with 128 added.
  int32_t offset[kPanel];
};
constexpr int64_t Int8PanelBytes(int64_t inputs) {
  return sizeof(Int8PanelHead) + (inputs + 3) / 4 * 4 * kPanel;
}

enum class Epilogue { kStore, kSilu, kAdd };

// Panels [first_panel, last_panel) of y = W x + bias, for all rows of x.
struct DenseTask {
  const std::byte* panels = nullptr;
  const float* bias = nullptr;  // [outputs], zeros where there is none
  int64_t inputs = 0;
  int64_t outputs = 0;
  // The rows of x: float32, or packed by pack_inputs for bfloat16 weights, by
  // round_inputs for int8 ones.
  const std::byte* x = nullptr;
  size_t x_stride = 0;              // bytes
  const float* x_scales = nullptr;  // of each row, for int8 weights
  Epilogue epilogue = Epilogue::kStore;
  MatrixView<float> y;
  int64_t first_panel = 0;
  int64_t last_panel = 0;
};

// Rows [first_row, first_row + num_rows) of a step, all of one run. First their
// weights are made, then columns [first_col, last_col) of the result, which any
// number of tasks may divide among themselves.
struct AttendTask {
  const Attention* attention = nullptr;
  const LayerState* state = nullptr;
  const HeadRows* heads = nullptr;
  MatrixView<float> gated;
  const Row* rows = nullptr;  // of the step
  int64_t first_row = 0;
  int num_rows = 0;
  int64_t first_col = 0;  // multiples of Panels::kWidth
  int64_t last_col = 0;
  float* weights = nullptr;       // [num_rows, Padded(C)]
  float* scratch = nullptr;       // [2, Padded(C)], [kMaxPutOff, Padded(S)]
  const Fold* put_off = nullptr;  // of a single row: U is not written yet
};

// Columns [first_col, last_col) of one fold.
struct FoldTask {
  const Attention* attention = nullptr;
  const LayerState* state = nullptr;
  Fold fold;
  int64_t first_col = 0;  // multiples of Panels::kWidth
  int64_t last_col = 0;
  float* scratch = nullptr;  // [kFoldBlock, Padded(S)]
};

// Positions whose lin_k a fold widens at once.
inline constexpr int64_t kFoldBlock = 128;

// One row of AppendHeads().
struct AppendTask {
  const Attention* attention = nullptr;
  const LayerState* state = nullptr;
  const HeadRows* heads = nullptr;
  const Row* rows = nullptr;  // of the step
  int64_t row = 0;
  const float* cos = nullptr;  // of this row
  const float* sin = nullptr;
};

struct KernelTable {
  const char* name;
  int tile_rows;            // rows that share what they read
  size_t input_pair_bytes;  // what pack_inputs writes for two inputs
  size_t input_quad_bytes;  // what round_inputs writes for four

  void (*embed)(const Embedding& embedding, const Row& row, int64_t cols,
                float* x);
  void (*normalize)(const Norm& norm, const float* x, int64_t cols, float* y);
  void (*pack_inputs)(const float* x, int64_t n, std::byte* out);
  // Writes Padded(n) inputs as int8, and returns their scale: NaN where an
  // input is not finite.
  float (*round_inputs)(const float* x, int64_t n, std::byte* out);
  void (*dense_float32)(const DenseTask& task);
  void (*dense_bfloat16)(const DenseTask& task);
  void (*dense_int8)(const DenseTask& task);
  // Returns whether gate, value and z of the row are finite.
  bool (*append_heads)(const AppendTask& task);
  // Fills the task's weights: w_ij of its rows.
  void (*weigh)(const AttendTask& task);
  // Uses them. Returns of how many positions it read the values.
  int64_t (*attend)(const AttendTask& task);
  void (*fold)(const FoldTask& task);
  bool (*all_finite)(const float* x, int64_t padded_cols);
};

}  // namespace flash::cpu

#endif  // KERNELS_CPU_KERNEL_TABLE_H_
