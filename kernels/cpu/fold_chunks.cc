// Some columns of one fold: sum += lin_k^T v, one fused multiply-add for each
// position in ascending order, and the new U where the chunk closes.

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tile.h"

namespace flash::cpu::FLASH_ISA {
namespace {

// How many tiles of the sum are asked for before they are added to: a few
// positions are too little work for the processor to look ahead by itself.
constexpr int64_t kTilesAhead = 4;

template <typename T>
class Folder {
 public:
  explicit Folder(const FoldTask& task)
      : task_(task),
        s_(task.attention->query_key_size),
        s_padded_(Padded(s_)),
        value_panels_{task.attention->chunk_size,
                      Padded(task.attention->expanded_size)},
        sum_panels_{s_, value_panels_.cols} {
    const size_t slot = task.fold.slot * task.state->slot_stride;
    lin_k_ = reinterpret_cast<const T*>(task.state->lin_k + slot);
    value_ = reinterpret_cast<const T*>(task.state->value + slot);
    u_ = reinterpret_cast<T*>(task.state->u + slot);
    sum_ = reinterpret_cast<float*>(
        reinterpret_cast<std::byte*>(task.state->sum) + slot);
  }

  void Run() {
    int64_t j = task_.fold.first;
    for (; task_.fold.last - j > kFoldBlock; j += kFoldBlock) {
      Block<false>(j, kFoldBlock);
    }
    // The last one has the complete sums in its hands.
    if (task_.fold.closes) {
      Block<true>(j, task_.fold.last - j);
    } else {
      Block<false>(j, task_.fold.last - j);
    }
  }

 private:
  template <bool kCloses>
  void Block(int64_t first, int64_t positions) {
    for (int64_t c = 0; c < positions * s_padded_; c += 16) {
      Store(task_.scratch + c, Load(lin_k_ + first * s_padded_ + c));
    }
    for (int64_t panel = task_.first_col; panel < task_.last_col;
         panel += Panels::kWidth) {
      const int64_t width = sum_panels_.Width(panel);
      const T* value = value_ + value_panels_.Begin(panel) + first * width;
      ForEachRowTile<kTileRows>(s_, [&]<int M>(int64_t k) {
        const int64_t at = sum_panels_.Begin(panel) + k * width;
        const Left lin_k = {task_.scratch + k, 1, s_padded_};
        int64_t c = 0;
        for (; c + 16 * kTileVectors <= width; c += 16 * kTileVectors) {
          AddTile<M, kTileVectors, kCloses>(
              at + c, lin_k, Right<T>{value + c, width}, positions);
        }
        for (; c < width; c += 16) {
          AddTile<M, 1, kCloses>(at + c, lin_k, Right<T>{value + c, width},
                                 positions);
        }
      });
    }
  }

  // The tile of the sum, and of U, that begins at element `at`.
  template <int M, int N, bool kCloses>
  void AddTile(int64_t at, Left lin_k, Right<T> value, int64_t positions) {
    const int64_t stride = value.depth_stride;
    PrefetchSum<M, N>(at + kTilesAhead * M * stride);
    Tile<M, N> sums;
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        sums[m][n] = Load(sum_ + at + m * stride + 16 * n);
      }
    }
    AddProduct<M, N>(lin_k, value, positions, sums);
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        const int64_t place = at + m * stride + 16 * n;
        Store(sum_ + place, sums[m][n]);
        if constexpr (kCloses) Store(u_ + place, sums[m][n]);
      }
    }
  }

  // Asks for M x N vectors to read and write. The tiles of a panel, and the
  // panels, stand one after the other.
  template <int M, int N>
  void PrefetchSum(int64_t at) const {
    for (int n = 0; n < M * N; ++n) {
      __builtin_prefetch(sum_ + at + 16 * n, 1, 2);
    }
  }

  const FoldTask& task_;
  const int64_t s_;
  const int64_t s_padded_;
  const Panels value_panels_;
  const Panels sum_panels_;
  const T* lin_k_;
  const T* value_;
  T* u_;
  float* sum_;
};

}  // namespace

void FoldChunk(const FoldTask& task) {
  if (task.state->cache == DataType::kFloat32) {
    Folder<float>(task).Run();
  } else {
    Folder<uint16_t>(task).Run();
  }
}

}  // namespace flash::cpu::FLASH_ISA
