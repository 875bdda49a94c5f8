// The weights of local attention (format step 2.5):
//   w_ij = weight_scale phi(score_scale quad_q_i . quad_k_j + bias[i - j])
// A block does 64 positions of one tile of rows, whose keys it reads once.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/panel_sums.h"

namespace flash::cuda {
namespace {

__device__ float Weight(const Attention& attention, const Row& row, int64_t j,
                        float product) {
  const float score =
      product * attention.score_scale + attention.bias[row.offset - j];
  if (attention.phi == Phi::kReluSquared) {
    const float positive = score < 0 ? 0 : score;  // keeps a NaN
    return positive * positive * row.weight_scale;
  }
  const float inverse = 1.0f / (attention.laplace_std * 1.41421356237309505f);
  const float unit = (score - attention.laplace_mean) * inverse;
  return 0.5f * (1.0f + erff(unit)) * row.weight_scale;
}

// Room for the sums of a tile of any size. (Not in the kernel itself: a
// host compiler does not put a template's variables where the emulator looks
// for shared ones.)
__device__ WarpSums<kTileRows>& SharedSums() {
  __shared__ WarpSums<kTileRows> sums;
  return sums;
}

// T is the cache type: float or uint16_t (bfloat16).
template <typename T, int kRows>
__global__ void __launch_bounds__(kPanelThreads)
    WeighKernel(AttendOperands operands, const RowTile* tiles) {
  auto& warp_sums = reinterpret_cast<WarpSums<kRows>&>(SharedSums());
  const RowTile tile = tiles[blockIdx.x];
  const Row* rows = operands.step.rows + tile.first_row;
  const Panels panels = {.rows = operands.attention.query_key_size,
                         .cols = Padded(operands.attention.chunk_size)};
  const int64_t panel = int64_t{blockIdx.y} * Panels::kWidth;
  if (panel > rows[tile.num_rows - 1].offset) return;  // nobody looks at it
  const int width = static_cast<int>(panels.Width(panel));
  PanelSums<kRows> sums = {};
  if (PanelColumn() < width) {
    const T* quad_k =
        reinterpret_cast<const T*>(operands.state.quad_k +
                                   rows[0].slot * operands.state.slot_stride) +
        panels.Begin(panel);
    const float* quad_q[kRows];
    FindRows<kRows>(operands.heads.quad_q, tile, quad_q);
    AddProduct<T, kRows>(quad_q, quad_k, width, panels.rows, sums);
  }
  StoreWarpSums<kRows>(sums, warp_sums);
  __syncthreads();
  for (int n = threadIdx.x; n < tile.num_rows * Panels::kWidth;
       n += kPanelThreads) {
    const int m = n / Panels::kWidth;
    const int c = n % Panels::kWidth;
    if (c >= width) continue;
    // Later positions have weight 0, and are never a product with what stands
    // there but for rows of this very step.
    const int64_t j = panel + c;
    const float weight = j <= rows[m].offset
                             ? Weight(operands.attention, rows[m], j,
                                      JoinedSum<kRows>(warp_sums, m, c))
                             : 0;
    operands.weights.Row(tile.first_row + m)[j] = weight;
    if (kRows == 1 && weight != 0) {
      atomicAdd(&operands.step.reports[tile.first_row].num_values, 1u);
    }
  }
}

template <int kRows>
cudaError_t WeighTiles(const AttendOperands& operands, const RowTile* tiles,
                       int64_t num_tiles, cudaStream_t stream) {
  const bool wide = operands.state.cache == DataType::kFloat32;
  return Launch(
      wide ? WeighKernel<float, kRows> : WeighKernel<uint16_t, kRows>,
      {.grid = dim3(NumBlocks(num_tiles, 1),
                    NumBlocks(operands.attention.chunk_size, Panels::kWidth)),
       .block = kPanelThreads,
       .stream = stream},
      operands, tiles);
}

}  // namespace

cudaError_t Weigh(const AttendOperands& operands, cudaStream_t stream) {
  const cudaError_t error =
      WeighTiles<1>(operands, operands.singles, operands.num_singles, stream);
  if (error != cudaSuccess) return error;
  return WeighTiles<kTileRows>(operands, operands.tiles, operands.num_tiles,
                               stream);
}

}  // namespace flash::cuda
