// One layer's attention with random numbers, slots for its state, and steps of
// it: what the tests of AppendHeads(), Attend() and FoldChunks() share.

#ifndef TESTS_KERNELS_RANDOM_LAYER_H_
#define TESTS_KERNELS_RANDOM_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/kernels/backend_fixture.h"

namespace flash {

// The settings of an attention layer, with numbers of its own. `settings` says
// everything but head_scale, head_offset and bias.
class RandomLayer {
 public:
  explicit RandomLayer(const Attention& settings);

  const Attention& attention() const { return attention_; }
  int64_t s() const { return attention_.query_key_size; }
  int64_t e() const { return attention_.expanded_size; }
  int64_t c() const { return attention_.chunk_size; }

  // Gate, value and z of one token: random, but always the same.
  void FillUvz(int slot, int64_t position, float* uvz) const;

 private:
  Attention attention_;
  Lines head_scale_;
  Lines head_offset_;
  Lines bias_;
};

// The state of some slots in one layer. Everything in it is `stale` at first,
// which nobody may make use of, and stays so around the tensors.
class Slots {
 public:
  enum Tensor { kU, kSum, kQuadK, kLinK, kValue, kShift };

  Slots(const Attention& attention, DataType cache, int num_slots,
        uint32_t stale = kNaNs, int64_t width = 1);

  LayerState state() const;

  float Get(Tensor tensor, int slot, int64_t row, int64_t col) const;
  void Set(Tensor tensor, int slot, int64_t row, int64_t col, float number);
  // Rows [first, last): random numbers, and zeros in the padding.
  void FillRandom(Tensor tensor, int slot, int64_t first, int64_t last);

  // What stands in memory: all of a slot, or one of its tensors.
  std::vector<std::byte> Bytes(int slot) const;
  std::vector<std::byte> Bytes(Tensor tensor, int slot) const;

 private:
  struct Part {
    size_t offset = 0;
    int64_t rows = 0;
    int64_t cols = 0;
    DataType type = DataType::kFloat32;
    bool is_present = false;
    bool in_panels = false;  // of 64 columns
    bool transposed = false;

    size_t bytes() const { return rows * Padded(cols) * SizeOf(type); }
  };

  static std::vector<Part> Parts(const Attention& attention, DataType cache,
                                 int64_t width);
  std::byte* Address(Tensor tensor, int slot, int64_t row, int64_t col) const;

  const DataType cache_;
  const std::vector<Part> parts_;
  const size_t stride_;
  Lines memory_;
};

// Consecutive positions of a slot, in one chunk.
struct PositionRun {
  int slot = 0;
  int64_t position = 0;
  int num_rows = 1;
};

// One step of a layer over some runs, with the matrices that it needs.
class LayerStep {
 public:
  LayerStep(const RandomLayer& layer, const std::vector<PositionRun>& runs);

  // Both are to be called in this order, after backend.BeginStep(view()).
  void AppendHeads(Backend& backend, const Slots& slots) const;
  void Attend(Backend& backend, const Slots& slots,
              std::span<const Fold> put_off = {}) const;
  // All of it.
  void Run(Backend& backend, const Slots& slots) const;

  StepRows view() const { return step_.view(); }
  const std::vector<Row>& rows() const { return step_.rows; }
  const Matrix& uvz() const { return uvz_; }
  const Matrix& quad_q() const { return quad_q_; }
  const Matrix& lin_q() const { return lin_q_; }
  const Matrix& cos() const { return cos_; }
  const Matrix& sin() const { return sin_; }
  const Matrix& gated() const { return gated_; }

 private:
  HeadRows heads() const;

  const RandomLayer& layer_;
  Step step_;
  Matrix uvz_, quad_q_, lin_q_, cos_, sin_, gated_;
};

}  // namespace flash

#endif  // TESTS_KERNELS_RANDOM_LAYER_H_
