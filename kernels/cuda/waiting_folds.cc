#include "kernels/cuda/waiting_folds.h"

#include <algorithm>
#include <utility>

namespace flash::cuda {

FoldShape WaitingFolds::ShapeOf(const Attention& attention,
                                const LayerState& state) {
  return {.query_key_size = attention.query_key_size,
          .expanded_size = attention.expanded_size,
          .chunk_size = attention.chunk_size,
          .cache = state.cache};
}

bool WaitingFolds::HasRoomFor(const Attention& attention,
                              const LayerState& state) const {
  return empty() || (ShapeOf(attention, state) == shape_ && !Has(state));
}

void WaitingFolds::Add(const Attention& attention, const LayerState& state,
                       std::span<const Fold> folds) {
  shape_ = ShapeOf(attention, state);
  for (const Fold& fold : folds) {
    const size_t slot = fold.slot * state.slot_stride;
    std::byte* sum = reinterpret_cast<std::byte*>(state.sum) + slot;
    tasks_.push_back({.lin_k = state.lin_k + slot,
                      .value = state.value + slot,
                      .sum = reinterpret_cast<float*>(sum),
                      .u = state.u + slot,
                      .first = fold.first,
                      .last = fold.last,
                      .closes = fold.closes});
  }
  states_.push_back(state.value);
}

bool WaitingFolds::Has(const LayerState& state) const {
  return std::find(states_.begin(), states_.end(), state.value) !=
         states_.end();
}

std::vector<FoldTask> WaitingFolds::Take() {
  states_.clear();
  return std::exchange(tasks_, {});
}

}  // namespace flash::cuda
