#include "server/model/activations.h"

#include <array>
#include <utility>

namespace flash {
namespace {

struct Shape {
  MatrixView<float> Activations::*member;
  int64_t rows;
  int64_t cols;
};

}  // namespace

absl::StatusOr<Activations> Activations::Allocate(
    Backend& backend, const ModelConfig& config, int64_t rows,
    int64_t logits_rows, std::unique_ptr<Buffer>& memory) {
  const int64_t angles = config.rope.has_value() ? config.rope->size / 2 : 0;
  const int64_t d = config.hidden_size;
  const int64_t s = config.query_key_size;
  const int64_t e = config.expanded_size;
  const std::array<Shape, 10> shapes = {{
      {&Activations::x, rows, d},
      {&Activations::y, rows, d},
      {&Activations::uvz, rows, 2 * Padded(e) + Padded(s)},
      {&Activations::quad_q, rows, s},
      {&Activations::lin_q, rows, s},
      {&Activations::gated, rows, e},
      {&Activations::cos, rows, angles},
      {&Activations::sin, rows, angles},
      {&Activations::chosen, logits_rows, d},
      {&Activations::logits, logits_rows, Padded(config.vocab_size)},
  }};
  size_t floats = 0;
  for (const Shape& shape : shapes) floats += shape.rows * Padded(shape.cols);
  absl::StatusOr<std::unique_ptr<Buffer>> buffer =
      backend.Allocate(floats * sizeof(float));
  if (!buffer.ok()) return buffer.status();
  memory = *std::move(buffer);
  Activations result;
  float* next = reinterpret_cast<float*>(memory->data());
  for (const Shape& shape : shapes) {
    result.*shape.member = {next, shape.rows, shape.cols, Padded(shape.cols)};
    next += shape.rows * Padded(shape.cols);
  }
  return result;
}

Activations Activations::Rows(int64_t rows, int64_t logits_rows) const {
  return {.x = x.First(rows),
          .y = y.First(rows),
          .uvz = uvz.First(rows),
          .quad_q = quad_q.First(rows),
          .lin_q = lin_q.First(rows),
          .gated = gated.First(rows),
          .cos = cos.First(rows),
          .sin = sin.First(rows),
          .chosen = chosen.First(logits_rows),
          .logits = logits.First(logits_rows)};
}

}  // namespace flash
