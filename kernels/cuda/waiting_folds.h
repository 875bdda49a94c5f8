// Folds that are put off until somebody wants to know: those of all layers can
// be one launch, since nothing else is done with their states in between.

#ifndef KERNELS_CUDA_WAITING_FOLDS_H_
#define KERNELS_CUDA_WAITING_FOLDS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "kernels/operands.h"

namespace flash::cuda {

// No two of them are of one state, and all have one shape.
class WaitingFolds {
 public:
  // Whether folds of this layer may wait with those that do.
  bool HasRoomFor(const Attention& attention, const LayerState& state) const;
  // REQUIRES: HasRoomFor().
  void Add(const Attention& attention, const LayerState& state,
           std::span<const Fold> folds);

  // Whether folds of this layer wait.
  bool Has(const LayerState& state) const;
  bool empty() const { return tasks_.empty(); }

  const FoldShape& shape() const { return shape_; }
  // None waits afterwards.
  std::vector<FoldTask> Take();

 private:
  static FoldShape ShapeOf(const Attention& attention, const LayerState& state);

  FoldShape shape_;
  std::vector<FoldTask> tasks_;
  std::vector<const std::byte*> states_;  // the layers, by where values begin
};

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_WAITING_FOLDS_H_
