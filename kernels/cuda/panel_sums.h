// Sums over the rows of a panel of 64 columns, as Weigh() and Attend() take
// them: 8 threads side by side have eight columns each, and 32 groups of them
// divide the rows, group g those whose number is g modulo 32. The groups' sums
// are joined in a fixed order. So a sum does not depend on how many rows of a
// step share the panel, and nothing but the sign of a zero on whether rows of
// the panel whose factor is 0 are left out.

#ifndef KERNELS_CUDA_PANEL_SUMS_H_
#define KERNELS_CUDA_PANEL_SUMS_H_

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"
#include "kernels/operands.h"

namespace flash::cuda {

inline constexpr int kPanelThreads = 256;  // of a block
inline constexpr int kPanelAcross = Panels::kWidth / 8;
inline constexpr int kPanelGroups = kPanelThreads / kPanelAcross;
inline constexpr int kPanelWarps = kPanelThreads / kWarp;

// The first of the thread's columns, and its group.
__device__ inline int PanelColumn() { return threadIdx.x % kPanelAcross * 8; }
__device__ inline int PanelGroup() { return threadIdx.x / kPanelAcross; }

// A thread's sums, of `kRows` rows of a step.
template <int kRows>
struct PanelSums {
  Eight rows[kRows];
};

// The rows of `matrix` that are the tile's. What is computed for rows that the
// tile has not got is not stored.
template <int kRows>
__device__ void FindRows(const MatrixView<float>& matrix, const RowTile& tile,
                         const float* (&rows)[kRows]) {
  for (int m = 0; m < kRows; ++m) {
    const int row = m < tile.num_rows ? m : tile.num_rows - 1;
    rows[m] = matrix.Row(tile.first_row + row);
  }
}

// Loads that are in flight at once; with more rows to a tile there are fewer
// registers for them.
template <int kRows>
constexpr int kLoads = kRows == 1 ? 8 : 2;

// sums[m] += factors[m] . right, for the thread's columns and its group's part
// of the depth. right: [depth, width]; rows whose factors are all 0 are not
// read, and what is not read adds a zero.
template <typename T, int kRows>
__device__ void AddProduct(const float* const (&factors)[kRows], const T* right,
                           int width, int64_t depth, PanelSums<kRows>& sums) {
  constexpr int kAtOnce = kLoads<kRows>;
  for (int64_t first = PanelGroup(); first < depth;
       first += kAtOnce * kPanelGroups) {
    float x[kAtOnce][kRows];
    Eight values[kAtOnce];
    for (int n = 0; n < kAtOnce; ++n) {
      const int64_t k = first + n * kPanelGroups;
      bool is_read = false;
      for (int m = 0; m < kRows; ++m) {
        x[n][m] = k < depth ? factors[m][k] : 0;
        is_read |= x[n][m] != 0;  // a NaN is
      }
      values[n] =
          is_read ? LoadEight(right + k * width + PanelColumn()) : ZeroEight();
    }
    for (int n = 0; n < kAtOnce; ++n) {
      for (int m = 0; m < kRows; ++m) {
        AddScaled(x[n][m], values[n], sums.rows[m]);
      }
    }
  }
  // A sum may be -0, and the zeros that stand for what is not read would make
  // it +0: it is +0 in any case.
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < 8; ++n) sums.rows[m].v[n] += 0.0f;
  }
}

// In shared memory: the sums of each warp.
template <int kRows>
using WarpSums = float[kPanelWarps][kRows][Panels::kWidth];

// Joins the groups of each warp. To be called by all threads.
template <int kRows>
__device__ void StoreWarpSums(const PanelSums<kRows>& sums,
                              WarpSums<kRows>& out) {
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < 8; ++n) {
      float sum = sums.rows[m].v[n];
      for (int lanes = kPanelAcross; lanes < kWarp; lanes *= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, lanes);
      }
      if (threadIdx.x % kWarp < kPanelAcross) {
        out[threadIdx.x / kWarp][m][PanelColumn() + n] = sum;
      }
    }
  }
}

// Joins the warps: the sum of row `m`, column `c`. After a barrier.
template <int kRows>
__device__ float JoinedSum(const WarpSums<kRows>& sums, int m, int c) {
  float sum = 0;
  for (int warp = 0; warp < kPanelWarps; ++warp) sum += sums[warp][m][c];
  return sum;
}

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_PANEL_SUMS_H_
