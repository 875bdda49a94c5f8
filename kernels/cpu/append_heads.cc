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

template <typename T>
void StoreRow(const float* from, int64_t padded_cols, T* to) {
  for (int64_t c = 0; c < padded_cols; c += 16) Store(to + c, Load(from + c));
}

// Row `offset` of a slot's values gets `from`, in panels.
template <typename T>
void StoreInPanels(const AppendTask& task, const float* from, T* tensor) {
  const Panels panels = {.rows = task.attention->chunk_size,
                         .cols = Padded(task.attention->expanded_size)};
  const int64_t offset = task.rows[task.row].offset;
  for (int64_t col = 0; col < panels.cols; col += Panels::kWidth) {
    const int64_t width = panels.Width(col);
    StoreRow(from + col, width, tensor + panels.Begin(col) + offset * width);
  }
}

void AppendValue(const AppendTask& task, const float* from) {
  std::byte* slot =
      task.state->value + task.rows[task.row].slot * task.state->slot_stride;
  if (task.state->cache == DataType::kFloat32) {
    StoreInPanels(task, from, reinterpret_cast<float*>(slot));
  } else {
    StoreInPanels(task, from, reinterpret_cast<uint16_t*>(slot));
  }
}

// Column `offset` of a slot's transposed keys gets `from`, in panels.
template <typename T>
void StoreColumn(const AppendTask& task, const float* from, T* tensor) {
  const Panels panels = {.rows = task.attention->query_key_size,
                         .cols = Padded(task.attention->chunk_size)};
  const int64_t offset = task.rows[task.row].offset;
  const int64_t panel = offset / Panels::kWidth * Panels::kWidth;
  const int64_t width = panels.Width(panel);
  T* to = tensor + panels.Begin(panel) + (offset - panel);
  for (int64_t c = 0; c < panels.rows; c += 16) {
    T rounded[16];
    Store(rounded, Load(from + c));
    const int64_t last = panels.rows - c < 16 ? panels.rows - c : 16;
    for (int64_t n = 0; n < last; ++n) to[(c + n) * width] = rounded[n];
  }
}

void AppendQuadK(const AppendTask& task, const float* from) {
  std::byte* slot =
      task.state->quad_k + task.rows[task.row].slot * task.state->slot_stride;
  if (task.state->cache == DataType::kFloat32) {
    StoreColumn(task, from, reinterpret_cast<float*>(slot));
  } else {
    StoreColumn(task, from, reinterpret_cast<uint16_t*>(slot));
  }
}

// Row `offset` of a slot's tensor in the open chunk gets `from`.
void Append(const AppendTask& task, std::byte* tensor, const float* from,
            int64_t padded_cols) {
  const Row& row = task.rows[task.row];
  std::byte* slot = tensor + row.slot * task.state->slot_stride;
  const int64_t begin = row.offset * padded_cols;
  if (task.state->cache == DataType::kFloat32) {
    StoreRow(from, padded_cols, reinterpret_cast<float*>(slot) + begin);
  } else {
    StoreRow(from, padded_cols, reinterpret_cast<uint16_t*>(slot) + begin);
  }
}

}  // namespace

bool AppendHeads(const AppendTask& task) {
  const Attention& attention = *task.attention;
  const LayerState& state = *task.state;
  const HeadMaker heads(task);
  const int64_t s = Padded(attention.query_key_size);
  const int64_t e = Padded(attention.expanded_size);
  float* quad_q = task.heads->quad_q.Row(task.row);
  float* lin_q = task.heads->lin_q.Row(task.row);
  const int lin = attention.has_quadratic ? 0 : kLinQ - kQuadQ;
  // The query's row holds the key first, on its way to the chunk.
  if (attention.has_quadratic) {
    heads.Make(kQuadK, quad_q);
    AppendQuadK(task, quad_q);
    heads.Make(kQuadQ, quad_q);
  }
  if (attention.has_linear) {
    heads.Make(kLinK - lin, lin_q);
    Append(task, state.lin_k, lin_q, s);
    heads.Make(kLinQ - lin, lin_q);
  }
  const float* uvz = task.heads->uvz.Row(task.row);
  AppendValue(task, uvz + e);
  return AllFiniteRow(uvz, 2 * e + s);
}

}  // namespace flash::cpu::FLASH_ISA
