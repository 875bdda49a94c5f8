// Which rows of a step attend together.

#ifndef KERNELS_CUDA_ROW_TILES_H_
#define KERNELS_CUDA_ROW_TILES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "kernels/operands.h"

namespace flash::cuda {

struct RowTiles {
  std::vector<RowTile> singles;  // rows that are alone in their run
  std::vector<RowTile> tiles;    // of up to kTileRows rows of one run

  void Cut(std::span<const RowRun> runs) {
    singles.clear();
    tiles.clear();
    for (const RowRun& run : runs) {
      if (run.num_rows == 1) {
        singles.push_back({run.first_row, 1});
        continue;
      }
      for (int32_t at = 0; at < run.num_rows; at += kTileRows) {
        const int32_t left = run.num_rows - at;
        tiles.push_back(
            {run.first_row + at, left < kTileRows ? left : kTileRows});
      }
    }
  }
};

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_ROW_TILES_H_
