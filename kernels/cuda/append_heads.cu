// z becomes two queries for this step and two keys for the open chunk, the
// value goes with them (format step 2.4), after what is left to do of the
// product that uvz comes from. A block does a row.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace flash::cuda {
namespace {

constexpr int kThreads = 256;

// Order of the heads in head_scale and head_offset where both branches are on.
enum Head { kQuadQ, kQuadK, kLinQ, kLinK };

// A number of uvz, after its activation.
__device__ float Activated(const AppendOperands& operands, float number) {
  return operands.before_silu == nullptr ? number : Silu(number);
}

// head = rotate(z * scale + offset), number by number.
class HeadMaker {
 public:
  __device__ HeadMaker(const AppendOperands& operands, int64_t row)
      : operands_(operands),
        attention_(operands.attention),
        z_(operands.heads.uvz.Row(row) +
           2 * Padded(operands.attention.expanded_size)),
        cos_(operands.cos.Row(row)),
        sin_(operands.sin.Row(row)),
        padded_(Padded(operands.attention.query_key_size)) {}

  __device__ float Make(int head, int64_t c) const {
    const int64_t half = attention_.rotary_size / 2;
    if (c >= 2 * half) return Scaled(head, c);
    const bool halves = attention_.rotary_layout == Rotary::Layout::kHalves;
    const int64_t k = halves ? c % half : c / 2;
    const float a = Scaled(head, halves ? k : 2 * k);
    const float b = Scaled(head, halves ? k + half : 2 * k + 1);
    const bool is_first = halves ? c < half : c % 2 == 0;
    return is_first ? a * cos_[k] - b * sin_[k] : b * cos_[k] + a * sin_[k];
  }

 private:
  __device__ float Scaled(int head, int64_t c) const {
    const int64_t at = head * padded_ + c;
    return fmaf(Activated(operands_, z_[c]), attention_.head_scale[at],
                attention_.head_offset[at]);
  }

  const AppendOperands& operands_;
  const Attention& attention_;
  const float* const z_;
  const float* const cos_;
  const float* const sin_;
  const int64_t padded_;
};

// The row's place in its slot's open chunk.
template <typename T>
struct ChunkRow {
  T* quad_k;      // its column of the transposed keys
  int64_t width;  // from one number of that column to the next
  T* lin_k;
  T* value;  // where panel 0 would begin
};

template <typename T>
__device__ ChunkRow<T> FindChunkRow(const AppendOperands& operands,
                                    const Row& row) {
  const Attention& attention = operands.attention;
  const size_t slot = row.slot * operands.state.slot_stride;
  const Panels keys = {.rows = attention.query_key_size,
                       .cols = Padded(attention.chunk_size)};
  const int64_t panel = row.offset / Panels::kWidth * Panels::kWidth;
  return {.quad_k = reinterpret_cast<T*>(operands.state.quad_k + slot) +
                    keys.Begin(panel) + (row.offset - panel),
          .width = keys.Width(panel),
          .lin_k = reinterpret_cast<T*>(operands.state.lin_k + slot) +
                   row.offset * Padded(attention.query_key_size),
          .value = reinterpret_cast<T*>(operands.state.value + slot)};
}

// T is the cache type: float or uint16_t (bfloat16).
template <typename T>
__global__ void AppendHeadsKernel(AppendOperands operands) {
  const Attention& attention = operands.attention;
  const int64_t b = blockIdx.x;
  const Row& row = operands.step.rows[b];
  const HeadMaker heads(operands, b);
  const ChunkRow<T> chunk = FindChunkRow<T>(operands, row);
  const int64_t s = attention.query_key_size;
  const int lin = attention.has_quadratic ? 0 : kLinQ - kQuadQ;
  for (int64_t c = threadIdx.x; c < Padded(s); c += kThreads) {
    if (attention.has_quadratic) {
      operands.heads.quad_q.Row(b)[c] = heads.Make(kQuadQ, c);
      if (c < s) Store(chunk.quad_k + c * chunk.width, heads.Make(kQuadK, c));
    }
    if (attention.has_linear) {
      operands.heads.lin_q.Row(b)[c] = heads.Make(kLinQ - lin, c);
      Store(chunk.lin_k + c, heads.Make(kLinK - lin, c));
    }
  }
  __syncthreads();  // z has been read
  const Panels values = {.rows = attention.chunk_size,
                         .cols = Padded(attention.expanded_size)};
  const MatrixView<const float>& uvz = operands.heads.uvz;
  bool finite = true;
  for (int64_t c = threadIdx.x; c < 2 * values.cols + Padded(s);
       c += kThreads) {
    const float number = Activated(operands, uvz.Row(b)[c]);
    finite &= IsFinite(number);
    if (operands.before_silu != nullptr) {
      operands.before_silu[b * uvz.row_stride + c] = number;
    }
    const int64_t col = c - values.cols;
    if (col < 0 || col >= values.cols) continue;
    const int64_t panel = col / Panels::kWidth * Panels::kWidth;
    Store(chunk.value + values.Begin(panel) + row.offset * values.Width(panel) +
              (col - panel),
          number);
  }
  if (!finite) atomicOr(&operands.step.reports[b].fault, 1u);
}

}  // namespace

cudaError_t AppendHeads(const AppendOperands& operands, cudaStream_t stream) {
  const bool wide = operands.state.cache == DataType::kFloat32;
  return Launch(wide ? AppendHeadsKernel<float> : AppendHeadsKernel<uint16_t>,
                {.grid = dim3(NumBlocks(operands.heads.uvz.rows, 1)),
                 .block = kThreads,
                 .stream = stream},
                operands);
}

}  // namespace flash::cuda
