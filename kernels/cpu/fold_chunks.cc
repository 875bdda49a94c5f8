// Some columns of one fold: sum += lin_k^T v, one fused multiply-add for each
// position in ascending order, and the new U where the chunk closes.

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tile.h"

namespace flash::cpu::FLASH_ISA {
namespace {

template <typename T>
class Folder {
 public:
  explicit Folder(const FoldTask& task)
      : task_(task),
        s_(task.attention->query_key_size),
        s_padded_(Padded(s_)),
        e_(Padded(task.attention->expanded_size)) {
    const size_t slot = task.fold.slot * task.state->slot_stride;
    lin_k_ = reinterpret_cast<const T*>(task.state->lin_k + slot);
    value_ = reinterpret_cast<const T*>(task.state->value + slot);
    u_ = reinterpret_cast<T*>(task.state->u + slot);
    sum_ = reinterpret_cast<float*>(
        reinterpret_cast<std::byte*>(task.state->sum) + slot);
  }

  void Run() {
    for (int64_t j = task_.fold.first; j < task_.fold.last; j += kFoldBlock) {
      const int64_t left = task_.fold.last - j;
      Block(j, left < kFoldBlock ? left : kFoldBlock);
    }
    if (task_.fold.closes) CopySum();
  }

 private:
  void Block(int64_t first, int64_t positions) {
    for (int64_t c = 0; c < positions * s_padded_; c += 16) {
      Store(task_.scratch + c, Load(lin_k_ + first * s_padded_ + c));
    }
    ForEachRowTile<kTileRows>(s_, [&]<int M>(int64_t k) {
      int64_t col = task_.first_col;
      for (; col + 16 * kTileVectors <= task_.last_col;
           col += 16 * kTileVectors) {
        AddTile<M, kTileVectors>(k, col, first, positions);
      }
      for (; col < task_.last_col; col += 16) {
        AddTile<M, 1>(k, col, first, positions);
      }
    });
  }

  template <int M, int N>
  void AddTile(int64_t k, int64_t col, int64_t first, int64_t positions) {
    Tile<M, N> sums;
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        sums[m][n] = Load(sum_ + (k + m) * e_ + col + 16 * n);
      }
    }
    AddProduct<M, N>(Left{task_.scratch + k, 1, s_padded_},
                     Right<T>{value_ + first * e_ + col, e_}, positions, sums);
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        Store(sum_ + (k + m) * e_ + col + 16 * n, sums[m][n]);
      }
    }
  }

  void CopySum() {
    for (int64_t k = 0; k < s_; ++k) {
      for (int64_t col = task_.first_col; col < task_.last_col; col += 16) {
        Store(u_ + k * e_ + col, Load(sum_ + k * e_ + col));
      }
    }
  }

  const FoldTask& task_;
  const int64_t s_;
  const int64_t s_padded_;
  const int64_t e_;
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
