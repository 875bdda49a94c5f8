// Dense products, y = epilogue(W x + bias). One panel of weights is used for
// all rows before the next one is read: a step reads the weights once.

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tile.h"

namespace flash::cpu::FLASH_ISA {
namespace {

// What is done with the sums of N vectors of outputs from `output` on.
template <int M, int N>
void StoreTile(const DenseTask& task, int64_t row, int64_t output,
               const Tile<M, N>& sums) {
  for (int n = 0; n < N; ++n) {
    const int64_t column = output + 16 * n;
    if (column >= task.outputs) return;
    const F32x16 bias = Load(task.bias + column);
    for (int m = 0; m < M; ++m) {
      float* y = task.y.Row(row + m) + column;
      F32x16 value = Add(sums[m][n], bias);
      if (task.epilogue == Epilogue::kSilu) value = Silu(value);
      if (task.epilogue == Epilogue::kAdd) value = Add(Load(y), value);
      Store(y, value);
    }
  }
}

template <int M, int N>
void Float32Tile(const DenseTask& task, int64_t row, int64_t output,
                 const float* weights) {
  const Left x = {reinterpret_cast<const float*>(task.x + row * task.x_stride),
                  static_cast<int64_t>(task.x_stride / sizeof(float)), 1};
  Tile<M, N> sums;
  ClearTile<M, N>(sums);
  AddProduct<M, N>(x, Right<float>{weights, kPanel}, task.inputs, sums);
  StoreTile<M, N>(task, row, output, sums);
}

template <int M, int N>
void BFloat16Tile(const DenseTask& task, int64_t row, int64_t output,
                  const uint16_t* weights) {
  const InputPair* x[M];
  for (int m = 0; m < M; ++m) {
    x[m] =
        reinterpret_cast<const InputPair*>(task.x + (row + m) * task.x_stride);
  }
  Tile<M, N> sums;
  ClearTile<M, N>(sums);
  const int64_t pairs = (task.inputs + 1) / 2;
  for (int64_t k = 0; k < pairs; ++k) {
    WeightPairs w[N];
    for (int n = 0; n < N; ++n) w[n] = LoadPairs(weights + 32 * n);
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        sums[m][n] = PairFma(w[n], x[m][k], sums[m][n]);
      }
    }
    weights += 2 * kPanel;
  }
  StoreTile<M, N>(task, row, output, sums);
}

// One row uses the whole width of a panel: enough independent sums to hide the
// latency of the multiply-adds.
template <int M>
constexpr int kVectors = M == 1 ? kPanel / 16 : kTileVectors;

template <int M>
void Float32Panel(const DenseTask& task, int64_t row, int64_t panel) {
  const float* weights = reinterpret_cast<const float*>(task.panels) +
                         panel * task.inputs * kPanel;
  for (int n = 0; n < kPanel / 16; n += kVectors<M>) {
    Float32Tile<M, kVectors<M>>(task, row, panel * kPanel + 16 * n,
                                weights + 16 * n);
  }
}

template <int M>
void BFloat16Panel(const DenseTask& task, int64_t row, int64_t panel) {
  const uint16_t* weights = reinterpret_cast<const uint16_t*>(task.panels) +
                            panel * ((task.inputs + 1) / 2) * 2 * kPanel;
  for (int n = 0; n < kPanel / 16; n += kVectors<M>) {
    BFloat16Tile<M, kVectors<M>>(task, row, panel * kPanel + 16 * n,
                                 weights + 32 * n);
  }
}

// The sums are exact, so that their order is free. Everything after them is
// plain float32: the same bits on every instruction set.
template <int M, int N>
void Int8Tile(const DenseTask& task, int64_t row, int64_t output,
              const Int8PanelHead& head, const int8_t* weights) {
  const InputQuad* x[M];
  for (int m = 0; m < M; ++m) {
    x[m] =
        reinterpret_cast<const InputQuad*>(task.x + (row + m) * task.x_stride);
  }
  const int64_t lane = output % kPanel;
  I32x16 sums[M][N];
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n)
      sums[m][n] = FirstSums(head.offset + lane + 16 * n);
  }
  const int64_t quads = (task.inputs + 3) / 4;
  for (int64_t k = 0; k < quads; ++k) {
    for (int n = 0; n < N; ++n) {
      const WeightQuads w = LoadQuads(weights + 64 * n);
      for (int m = 0; m < M; ++m) sums[m][n] = AddQuads(w, x[m][k], sums[m][n]);
    }
    weights += 4 * kPanel;
  }
  Tile<M, N> products;
  for (int m = 0; m < M; ++m) {
    const F32x16 x_scale = Set1(task.x_scales[row + m]);
    for (int n = 0; n < N; ++n) {
      const F32x16 scale = Mul(x_scale, Load(head.scale + lane + 16 * n));
      products[m][n] = Mul(ToFloat(sums[m][n]), scale);
    }
  }
  StoreTile<M, N>(task, row, output, products);
}

template <int M>
void Int8Panel(const DenseTask& task, int64_t row, int64_t panel) {
  const std::byte* begin = task.panels + panel * Int8PanelBytes(task.inputs);
  const auto& head = *reinterpret_cast<const Int8PanelHead*>(begin);
  const auto* weights =
      reinterpret_cast<const int8_t*>(begin + sizeof(Int8PanelHead));
  for (int n = 0; n < kPanel / 16; n += kVectors<M>) {
    Int8Tile<M, kVectors<M>>(task, row, panel * kPanel + 16 * n, head,
                             weights + 64 * n);
  }
}

}  // namespace

void PackInputRow(const float* x, int64_t n, std::byte* out) {
  PackInputs(x, n, reinterpret_cast<InputPair*>(out));
}

float RoundInputRow(const float* x, int64_t n, std::byte* out) {
  F32x16 magnitudes = Zero();
  F32x16 faults = Zero();  // x - x is 0 unless x is not finite
  for (int64_t k = 0; k < n; k += 16) {
    const F32x16 part = Load(x + k);
    magnitudes = Max(magnitudes, Max(part, Sub(Zero(), part)));
    faults = Add(faults, Sub(part, part));
  }
  float lanes[16];
  Store(lanes, magnitudes);
  float largest = 0;
  for (const float lane : lanes) largest = lane > largest ? lane : largest;
  const bool finite = AllFinite(faults);
  const float scale = largest / 127;
  const bool is_zero = !finite || scale < kLeastInt8Scale;
  const F32x16 inverse = Set1(is_zero ? 0.0f : 1 / scale);
  auto* quads = reinterpret_cast<InputQuad*>(out);
  for (int64_t k = 0; k < n; k += 16) {
    StoreQuads(quads + k / 4, Mul(Load(x + k), inverse));
  }
  if (!finite) return __builtin_nanf("");
  return is_zero ? 0 : scale;
}

void DenseFloat32(const DenseTask& task) {
  for (int64_t panel = task.first_panel; panel < task.last_panel; ++panel) {
    ForEachRowTile<kTileRows>(task.y.rows, [&]<int M>(int64_t row) {
      Float32Panel<M>(task, row, panel);
    });
  }
}

void DenseBFloat16(const DenseTask& task) {
  for (int64_t panel = task.first_panel; panel < task.last_panel; ++panel) {
    ForEachRowTile<kTileRows>(task.y.rows, [&]<int M>(int64_t row) {
      BFloat16Panel<M>(task, row, panel);
    });
  }
}

void DenseInt8(const DenseTask& task) {
  for (int64_t panel = task.first_panel; panel < task.last_panel; ++panel) {
    ForEachRowTile<kTileRows>(task.y.rows, [&]<int M>(int64_t row) {
      Int8Panel<M>(task, row, panel);
    });
  }
}

}  // namespace flash::cpu::FLASH_ISA
