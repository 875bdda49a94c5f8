// What the operations of backend.h are given: plain structs of sizes, pointers
// to device memory and views. The sizes' letters, padding and units are
// explained there.
//
// Includes next to nothing, since the CPU kernels that are compiled for one
// instruction set may not bring in other code.

#ifndef KERNELS_OPERANDS_H_
#define KERNELS_OPERANDS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace flash {

// The columns that a matrix of `n` columns takes in memory.
constexpr int64_t Padded(int64_t n) { return (n + 15) / 16 * 16; }

// How a tensor of [rows, cols] stands in memory whose columns are divided among
// threads: in panels of 64 columns (fewer in the last), each of them one piece,
// row after row, so that whoever works on some columns reads straight on.
struct Panels {
  static constexpr int64_t kWidth = 64;

  int64_t rows = 0;
  int64_t cols = 0;  // padded

  // The columns of the panel that begins at `col`, a multiple of kWidth.
  constexpr int64_t Width(int64_t col) const {
    return cols - col < kWidth ? cols - col : kWidth;
  }
  // Where that panel begins, in elements.
  constexpr int64_t Begin(int64_t col) const { return col * rows; }
};

// One token's place in a step.
struct Row {
  int32_t token = 0;
  int32_t slot = 0;
  int32_t offset = 0;      // i: its place in the open chunk, [0, C)
  int64_t position = 0;    // t: absolute, c * C + i
  float linear_scale = 0;  // lambda: what the product with U is multiplied by
  float weight_scale = 1;  // what phi(score) is multiplied by
};

// Consecutive rows of a step that are consecutive positions of one slot, in one
// chunk.
struct RowRun {
  int32_t first_row = 0;
  int32_t num_rows = 0;
};

// Positions [first, last) of a slot's open chunk that are added to its sum, in
// one layer. `closes`: they are the chunk's last ones; U becomes the sum.
struct Fold {
  int32_t slot = 0;
  int32_t first = 0;
  int32_t last = 0;
  bool closes = false;
};

// The most positions of a closing fold that Attend() makes up for.
inline constexpr int64_t kMaxPutOff = 4;

struct Embedding {
  const std::byte* table = nullptr;  // [V, D], without padding, of `type`
  DataType type = DataType::kFloat32;
  float scale = 1;
  enum class Position {
    kNone,
    kSinusoidal,
    kLearned
  } position = Position::kNone;
  const double* frequencies = nullptr;        // sinusoidal, on the host: [D/2]
  float position_scale = 0;                   // sinusoidal
  const std::byte* position_table = nullptr;  // learned: [max_length, D] of
  DataType position_type = DataType::kFloat32;

  bool operator==(const Embedding&) const = default;
};

struct Norm {
  enum class Type { kNone, kScale, kRms, kLayer } type = Type::kNone;
  enum class EpsMode { kAdd, kClamp } eps_mode = EpsMode::kAdd;
  float eps = 0;
  const float* weight = nullptr;  // [1] for kScale, else [Padded(D)]
  const float* bias = nullptr;    // [Padded(D)] for kLayer

  bool operator==(const Norm&) const = default;
};

struct Rotary {
  enum class Layout { kHalves, kInterleaved } layout = Layout::kHalves;
  enum class Position { kSequence, kChunk } position = Position::kSequence;
  const double* frequencies = nullptr;  // on the host: [size / 2]
  int64_t size = 0;                     // features that are rotated; 0: none

  bool operator==(const Rotary&) const = default;
};

// The least scale of int8 numbers that is not taken for 0, so that its inverse
// is a number.
inline constexpr float kLeastInt8Scale = 0x1p-100f;

enum class Activation { kNone, kSilu };

enum class Phi { kReluSquared, kLaplace };

// One layer's attention: the numbers of the format's steps 4 to 6.
struct Attention {
  int64_t query_key_size = 0;  // S
  int64_t expanded_size = 0;   // E
  int64_t chunk_size = 0;      // C
  bool has_quadratic = true;
  bool has_linear = true;
  Rotary::Layout rotary_layout = Rotary::Layout::kHalves;
  int64_t rotary_size = 0;
  Phi phi = Phi::kReluSquared;
  float score_scale = 1;
  float laplace_mean = 0;
  float laplace_std = 1;
  // [H, Padded(S)], H = 2 for each branch that is on: quad_q, quad_k, lin_q,
  // lin_k.
  const float* head_scale = nullptr;
  const float* head_offset = nullptr;
  const float* bias =
      nullptr;  // [Padded(C)]: added to the score at distance i - j

  bool operator==(const Attention&) const = default;
};

// Rows of LayerState::shift. A power of two; all but one of the last rows of a
// slot can be taken back.
inline constexpr int64_t kShiftRows = 16;

// One layer's part of the slots' state: where slot 0's tensors begin; those of
// slot n are n * slot_stride bytes further. Those of a branch that is off are
// null. "cache" is the cache type: float32 or bfloat16. What has Padded(E)
// columns stands in Panels, and so do the keys that a query meets, transposed:
// sixteen positions are one vector.
struct LayerState {
  std::byte* u =
      nullptr;  // [S, Padded(E)] cache: sum as of the last closed chunk
  float* sum =
      nullptr;  // [S, Padded(E)]: sum over all folded positions of lin_k^T v
  std::byte* quad_k = nullptr;  // [S, Padded(C)] cache, in Panels: transposed
  std::byte* lin_k = nullptr;   // [C, Padded(S)] cache
  std::byte* value = nullptr;   // [C, Padded(E)] cache
  // [kShiftRows, Padded(ceil(D/2))]: the normed halves of the last positions,
  // that of position t in row t % kShiftRows.
  float* shift = nullptr;
  size_t slot_stride = 0;  // bytes
  DataType cache = DataType::kFloat32;

  bool operator==(const LayerState&) const = default;
};

// What the operations of one layer hand to each other.
struct HeadRows {
  MatrixView<const float> uvz;  // [B, 2 Padded(E) + Padded(S)]: gate, value, z
  MatrixView<float> quad_q;     // [B, Padded(S)]
  MatrixView<float> lin_q;      // [B, Padded(S)]

  bool operator==(const HeadRows&) const = default;
};

}  // namespace flash

#endif  // KERNELS_OPERANDS_H_
