// One row of AppendHeads(): z becomes two queries for this step and two keys
// for the open chunk, the value goes with them (format step 2.4).

#include "kernels/cpu/kernels.h"

namespace flash::cpu::FLASH_ISA {
namespace {

// Order of the heads in head_scale and head_offset where both branches are on.
enum Head { kQuadQ, kQuadK, kLinQ, kLinK };

// head = rotate(z * scale + offset).
class HeadMaker {
 public:
  explicit HeadMaker(const AppendTask& task)
      : task_(task),
        attention_(*task.attention),
        z_(task.heads->uvz.Row(task.row) +
           2 * Padded(task.attention->expanded_size)),
        padded_(Padded(task.attention->query_key_size)) {}

  void Make(int head, float* out) const {
    const float* scale = attention_.head_scale + head * padded_;
    const float* offset = attention_.head_offset + head * padded_;
    for (int64_t c = 0; c < padded_; c += 16) {
      Store(out + c, Fma(Load(z_ + c), Load(scale + c), Load(offset + c)));
    }
    if (attention_.rotary_layout == Rotary::Layout::kHalves) {
      const int64_t half = attention_.rotary_size / 2;
      for (int64_t k = 0; k < half; ++k) Rotate(k, out[k], out[k + half]);
    } else {
      for (int64_t k = 0; k < attention_.rotary_size / 2; ++k) {
        Rotate(k, out[2 * k], out[2 * k + 1]);
      }
    }
  }

 private:
  void Rotate(int64_t k, float& a, float& b) const {
    const float first = a * task_.cos[k] - b * task_.sin[k];
    b = b * task_.cos[k] + a * task_.sin[k];
    a = first;
  }

  const AppendTask& task_;
  const Attention& attention_;
  const float* const z_;
  const int64_t padded_;
};

// The row's place in its slot's open chunk. T is the cache type: float or
// uint16_t (bfloat16).
template <typename T>
class ChunkRow {
 public:
  explicit ChunkRow(const AppendTask& task)
      : attention_(*task.attention),
        state_(*task.state),
        slot_(task.rows[task.row].slot * task.state->slot_stride),
        offset_(task.rows[task.row].offset) {}

  // A column of the transposed keys, in panels.
  void PutQuadK(const float* from) const {
    const Panels panels = {.rows = attention_.query_key_size,
                           .cols = Padded(attention_.chunk_size)};
    const int64_t panel = offset_ / Panels::kWidth * Panels::kWidth;
    const int64_t width = panels.Width(panel);
    T* to = InSlot(state_.quad_k) + panels.Begin(panel) + (offset_ - panel);
    for (int64_t c = 0; c < panels.rows; c += 16) {
      T rounded[16];
      Store(rounded, Load(from + c));
      const int64_t last = panels.rows - c < 16 ? panels.rows - c : 16;
      for (int64_t n = 0; n < last; ++n) to[(c + n) * width] = rounded[n];
    }
  }

  void PutLinK(const float* from) const {
    const int64_t s = Padded(attention_.query_key_size);
    Put(from, s, InSlot(state_.lin_k) + offset_ * s);
  }

  // A row of each panel.
  void PutValue(const float* from) const {
    const Panels panels = {.rows = attention_.chunk_size,
                           .cols = Padded(attention_.expanded_size)};
    for (int64_t col = 0; col < panels.cols; col += Panels::kWidth) {
      const int64_t width = panels.Width(col);
      Put(from + col, width,
          InSlot(state_.value) + panels.Begin(col) + offset_ * width);
    }
  }

 private:
  T* InSlot(std::byte* tensor) const {
    return reinterpret_cast<T*>(tensor + slot_);
  }
  static void Put(const float* from, int64_t padded_cols, T* to) {
    for (int64_t c = 0; c < padded_cols; c += 16) Store(to + c, Load(from + c));
  }

  const Attention& attention_;
  const LayerState& state_;
  const size_t slot_;  // bytes
  const int64_t offset_;
};

template <typename T>
bool AppendCached(const AppendTask& task) {
  const Attention& attention = *task.attention;
  const HeadMaker heads(task);
  const ChunkRow<T> chunk_row(task);
  const int64_t s = Padded(attention.query_key_size);
  const int64_t e = Padded(attention.expanded_size);
  float* quad_q = task.heads->quad_q.Row(task.row);
  float* lin_q = task.heads->lin_q.Row(task.row);
  const int lin = attention.has_quadratic ? 0 : kLinQ - kQuadQ;
  // The query's row holds the key first, on its way to the chunk.
  if (attention.has_quadratic) {
    heads.Make(kQuadK, quad_q);
    chunk_row.PutQuadK(quad_q);
    heads.Make(kQuadQ, quad_q);
  }
  if (attention.has_linear) {
    heads.Make(kLinK - lin, lin_q);
    chunk_row.PutLinK(lin_q);
    heads.Make(kLinQ - lin, lin_q);
  }
  const float* uvz = task.heads->uvz.Row(task.row);
  chunk_row.PutValue(uvz + e);
  return AllFiniteRow(uvz, 2 * e + s);
}

}  // namespace

bool AppendHeads(const AppendTask& task) {
  return task.state->cache == DataType::kFloat32 ? AppendCached<float>(task)
                                                 : AppendCached<uint16_t>(task);
}

}  // namespace flash::cpu::FLASH_ISA
