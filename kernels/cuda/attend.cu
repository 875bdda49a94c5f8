// Local attention over the open chunk, the product with U, and the gate (format
// steps 2.5, 2.6 and the gate of 2.7). A block does 64 columns of one tile of
// rows, and reads their part of the chunk and of U once, sixteen bytes at a
// time. Positions whose weight is 0 for all rows of the tile are not read.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/panel_sums.h"

namespace flash::cuda {
namespace {

// Where a block works. T is the cache type: float or uint16_t (bfloat16).
template <typename T>
struct Place {
  int64_t panel = 0;         // its first column
  int width = 0;             // of the panel
  const T* value = nullptr;  // the panels
  const T* u = nullptr;      // null where U adds nothing
  const float* sum = nullptr;
  const T* lin_k = nullptr;
};

template <typename T>
__device__ Place<T> FindPlace(const AttendOperands& operands, const Row& row) {
  const Attention& attention = operands.attention;
  const LayerState& state = operands.state;
  const Panels values = {.rows = attention.chunk_size,
                         .cols = Padded(attention.expanded_size)};
  const Panels closed = {.rows = attention.query_key_size, .cols = values.cols};
  const int64_t panel = int64_t{blockIdx.y} * Panels::kWidth;
  const size_t slot = row.slot * state.slot_stride;
  Place<T> place;
  place.panel = panel;
  place.width = static_cast<int>(values.Width(panel));
  place.value =
      reinterpret_cast<const T*>(state.value + slot) + values.Begin(panel);
  // No chunk is closed yet: U is zero. The rows of a tile share a chunk.
  if (!attention.has_linear || row.position == row.offset) return place;
  place.u = reinterpret_cast<const T*>(state.u + slot) + closed.Begin(panel);
  place.sum = reinterpret_cast<const float*>(
                  reinterpret_cast<const std::byte*>(state.sum) + slot) +
              closed.Begin(panel);
  place.lin_k = reinterpret_cast<const T*>(state.lin_k + slot);
  return place;
}

// AddProduct() with U, for a row alone and a U that is yet to be made of the
// sum: the chain of multiply-adds and the rounding that the fold will do.
template <typename T>
__device__ void AddUnwritten(const AttendOperands& operands,
                             const Place<T>& place, const PutOff& put_off,
                             const float* lin_q, PanelSums<1>& sums) {
  const int64_t s = operands.attention.query_key_size;
  for (int64_t k = PanelGroup(); k < s; k += kPanelGroups) {
    if (lin_q[k] == 0) continue;
    Eight u = LoadEight(place.sum + k * place.width + PanelColumn());
    for (int32_t j = put_off.first; j < put_off.last; ++j) {
      AddScaled(
          Load(place.lin_k + j * Padded(s) + k),
          LoadEight(place.value + int64_t{j} * place.width + PanelColumn()), u);
    }
    for (float& number : u.v) number = Rounded<T>(number);
    AddScaled(lin_q[k], u, sums.rows[0]);
  }
  for (int n = 0; n < 8; ++n) sums.rows[0].v[n] += 0.0f;
}

// The product with the weights, and the one with U.
template <typename T, int kRows>
__device__ void AddTile(const AttendOperands& operands, const RowTile& tile,
                        const Place<T>& place, PanelSums<kRows>& chunk,
                        PanelSums<kRows>& closed) {
  const float* factors[kRows];
  if (operands.attention.has_quadratic) {
    const int last = tile.first_row + tile.num_rows - 1;
    FindRows<kRows>(operands.weights, tile, factors);
    AddProduct<T, kRows>(factors, place.value, place.width,
                         operands.step.rows[last].offset + 1, chunk);
  }
  if (place.u == nullptr) return;
  FindRows<kRows>(operands.heads.lin_q, tile, factors);
  if constexpr (kRows == 1) {
    const PutOff put_off = operands.put_off[tile.first_row];
    if (put_off.is_there) {
      AddUnwritten<T>(operands, place, put_off, factors[0], closed);
      return;
    }
  }
  AddProduct<T, kRows>(factors, place.u, place.width,
                       operands.attention.query_key_size, closed);
}

// Room for the sums of a tile of any size. (Not in the kernel itself: a
// host compiler does not put a template's variables where the emulator looks
// for shared ones.)
struct TileSums {
  WarpSums<kTileRows> chunk;
  WarpSums<kTileRows> closed;
};
__device__ TileSums& SharedSums() {
  __shared__ TileSums sums;
  return sums;
}

template <typename T, int kRows>
__global__ void __launch_bounds__(kPanelThreads, 2)
    AttendKernel(AttendOperands operands, const RowTile* tiles) {
  auto& chunk_sums = reinterpret_cast<WarpSums<kRows>&>(SharedSums().chunk);
  auto& closed_sums = reinterpret_cast<WarpSums<kRows>&>(SharedSums().closed);
  const RowTile tile = tiles[blockIdx.x];
  const Row* rows = operands.step.rows + tile.first_row;
  const Place<T> place = FindPlace<T>(operands, rows[0]);
  {
    PanelSums<kRows> chunk = {};
    PanelSums<kRows> closed = {};
    if (PanelColumn() < place.width) {
      AddTile<T, kRows>(operands, tile, place, chunk, closed);
    }
    StoreWarpSums<kRows>(chunk, chunk_sums);
    StoreWarpSums<kRows>(closed, closed_sums);
  }
  __syncthreads();
  for (int n = threadIdx.x; n < tile.num_rows * place.width;
       n += kPanelThreads) {
    const int m = n / place.width;
    const int c = n % place.width;
    float out = JoinedSum<kRows>(chunk_sums, m, c);
    if (place.u != nullptr) {
      out =
          fmaf(rows[m].linear_scale, JoinedSum<kRows>(closed_sums, m, c), out);
    }
    const int64_t row = tile.first_row + m;
    const int64_t col = place.panel + c;
    const float gated = operands.heads.uvz.Row(row)[col] * out;
    operands.gated.Row(row)[col] = gated;
    if (operands.rounded != nullptr) {
      operands.rounded[row * Padded(operands.gated.cols) + col] = Narrow(gated);
    }
  }
}

template <int kRows>
cudaError_t AttendTiles(const AttendOperands& operands, const RowTile* tiles,
                        int64_t num_tiles, cudaStream_t stream) {
  const bool wide = operands.state.cache == DataType::kFloat32;
  return Launch(
      wide ? AttendKernel<float, kRows> : AttendKernel<uint16_t, kRows>,
      {.grid =
           dim3(NumBlocks(num_tiles, 1),
                NumBlocks(operands.attention.expanded_size, Panels::kWidth)),
       .block = kPanelThreads,
       .stream = stream},
      operands, tiles);
}

}  // namespace

cudaError_t Attend(const AttendOperands& operands, cudaStream_t stream) {
  const cudaError_t error =
      AttendTiles<1>(operands, operands.singles, operands.num_singles, stream);
  if (error != cudaSuccess) return error;
  return AttendTiles<kTileRows>(operands, operands.tiles, operands.num_tiles,
                                stream);
}

}  // namespace flash::cuda
