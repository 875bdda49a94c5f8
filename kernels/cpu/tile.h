// The product at the heart of every kernel: a tile of M x N vectors of sums
// that stays in registers while the depth runs in ascending order. Each sum is
// one chain of fused multiply-adds, whatever tile it is computed in.

#ifndef KERNELS_CPU_TILE_H_
#define KERNELS_CPU_TILE_H_

#include <cstdint>

#include "kernels/cpu/simd.h"

namespace flash::cpu::FLASH_ISA {

// The left operand: element (m, k) is data[m * row_stride + k * depth_stride].
struct Left {
  const float* data;
  int64_t row_stride;
  int64_t depth_stride;
};

// The right operand: element (k, n) is data[k * depth_stride + n].
template <typename T>
struct Right {
  const T* data;
  int64_t depth_stride;
};

template <int M, int N>
using Tile = F32x16[M][N];

template <int M, int N>
inline void ClearTile(Tile<M, N>& sums) {
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) sums[m][n] = Zero();
  }
}

// How many rows of the right operand a single row of sums asks for before it
// needs them: what such a product reads comes from memory, is used once, and is
// done with before the processor has seen where it goes. The rows after the
// last are those of the next panel.
constexpr int64_t kRowsAhead = 64;

// Asks for N vectors from `data` on.
template <int N, typename T>
inline void Prefetch(const T* data) {
  const char* line = reinterpret_cast<const char*>(data);
  for (size_t at = 0; at < 16 * N * sizeof(T); at += 64) {
    __builtin_prefetch(line + at, 0, 2);
  }
}

// sums[m][n] += sum over k < depth of left(m, k) * right(k, 16 n ...).
template <int M, int N, typename T>
inline void AddProduct(Left left, Right<T> right, int64_t depth,
                       Tile<M, N>& sums) {
  for (int64_t k = 0; k < depth; ++k) {
    F32x16 columns[N];
    for (int n = 0; n < N; ++n) {
      columns[n] = Load(right.data + k * right.depth_stride + 16 * n);
    }
    if constexpr (M == 1) {
      Prefetch<N>(right.data + (k + kRowsAhead) * right.depth_stride);
    }
    for (int m = 0; m < M; ++m) {
      const F32x16 x =
          Set1(left.data[m * left.row_stride + k * left.depth_stride]);
      for (int n = 0; n < N; ++n) sums[m][n] = Fma(x, columns[n], sums[m][n]);
    }
  }
}

// sums[0][n] += sum over k < depth of left[k] * right(indices[k], 16 n ...):
// the same without the terms that are not listed. Processors see no pattern in
// these: the same rows of `next`, the panel after this one, are asked for.
template <int N, typename T>
inline void AddListed(const float* left, const int32_t* indices, Right<T> right,
                      const T* next, int64_t depth, Tile<1, N>& sums) {
  for (int64_t k = 0; k < depth; ++k) {
    const int64_t at = indices[k] * right.depth_stride;
    Prefetch<N>(next + at);
    const T* columns = right.data + at;
    const F32x16 x = Set1(left[k]);
    for (int n = 0; n < N; ++n) {
      sums[0][n] = Fma(x, Load(columns + 16 * n), sums[0][n]);
    }
  }
}

// Calls f.template operator()<M>(first) for tiles of at most MaxM rows that
// cover [0, rows).
template <int MaxM, typename F>
inline void ForEachRowTile(int64_t rows, F&& f) {
  int64_t first = 0;
  for (; first + MaxM <= rows; first += MaxM)
    f.template operator()<MaxM>(first);
  if constexpr (MaxM > 1) {
    const int64_t begin = first;
    ForEachRowTile<MaxM - 1>(rows - begin, [&]<int M>(int64_t at) {
      f.template operator()<M>(begin + at);
    });
  }
}

}  // namespace flash::cpu::FLASH_ISA

#endif  // KERNELS_CPU_TILE_H_
