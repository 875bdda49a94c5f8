// One row of the embedding, format step 1.

#include <cmath>

#include "kernels/cpu/kernels.h"

namespace flash::cpu::FLASH_ISA {
namespace {

float WidenBFloat16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

// Calls f(c, table[row][c]) for each column.
template <typename F>
void ForEachElement(const std::byte* table, DataType type, int64_t row,
                    int64_t cols, F&& f) {
  if (type == DataType::kFloat32) {
    const float* from = reinterpret_cast<const float*>(table) + row * cols;
    for (int64_t c = 0; c < cols; ++c) f(c, from[c]);
  } else {
    const uint16_t* from =
        reinterpret_cast<const uint16_t*>(table) + row * cols;
    for (int64_t c = 0; c < cols; ++c) f(c, WidenBFloat16(from[c]));
  }
}

void AddSinusoids(const Embedding& embedding, int64_t position, int64_t cols,
                  float* x) {
  const int64_t half = cols / 2;
  for (int64_t k = 0; k < half; ++k) {
    // In double: at a position of a million float32 is visibly wrong.
    const double angle =
        static_cast<double>(position) * embedding.frequencies[k];
    const float scale = embedding.position_scale;
    x[k] += scale * static_cast<float>(std::sin(angle));
    x[half + k] += scale * static_cast<float>(std::cos(angle));
  }
}

}  // namespace

void Embed(const Embedding& embedding, const Row& row, int64_t cols, float* x) {
  ForEachElement(
      embedding.table, embedding.type, row.token, cols,
      [&](int64_t c, float value) { x[c] = value * embedding.scale; });
  for (int64_t c = cols; c < Padded(cols); ++c) x[c] = 0;
  if (embedding.position == Embedding::Position::kSinusoidal) {
    AddSinusoids(embedding, row.position, cols, x);
  } else if (embedding.position == Embedding::Position::kLearned) {
    ForEachElement(embedding.position_table, embedding.position_type,
                   row.position, cols,
                   [&](int64_t c, float value) { x[c] += value; });
  }
}

}  // namespace flash::cpu::FLASH_ISA
