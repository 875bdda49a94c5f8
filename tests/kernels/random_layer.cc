#include "tests/kernels/random_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace flash {
namespace {

// [rows, Padded(cols)] without anything in between.
Lines RandomNumbers(int64_t rows, int64_t cols, RandomSource& random) {
  Lines lines(rows * Padded(cols) * sizeof(float), 0);
  float* numbers = reinterpret_cast<float*>(lines.data());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      numbers[row * Padded(cols) + col] = static_cast<float>(random.Normal());
    }
  }
  return lines;
}

int64_t NumHeads(const Attention& attention) {
  return 2 * attention.has_quadratic + 2 * attention.has_linear;
}

int64_t NumRows(const std::vector<PositionRun>& runs) {
  int64_t rows = 0;
  for (const PositionRun& run : runs) rows += run.num_rows;
  return rows;
}

// Rows whose two factors are different for each position.
Step MakeStep(const std::vector<PositionRun>& runs, int64_t chunk_size) {
  Step step;
  for (const PositionRun& run : runs) {
    step.runs.push_back({.first_row = static_cast<int32_t>(step.rows.size()),
                         .num_rows = run.num_rows});
    for (int64_t t = run.position; t < run.position + run.num_rows; ++t) {
      step.rows.push_back({.slot = run.slot,
                           .offset = static_cast<int32_t>(t % chunk_size),
                           .position = t,
                           .linear_scale = 0.5f + 0.01f * (t % 32),
                           .weight_scale = 1.0f - 0.02f * (t % 16)});
    }
  }
  return step;
}

}  // namespace

RandomLayer::RandomLayer(const Attention& settings)
    : attention_(settings), head_scale_(0, 0), head_offset_(0, 0), bias_(0, 0) {
  RandomSource random(s() * 10007 + e() * 101 + c());
  head_scale_ = RandomNumbers(NumHeads(settings), s(), random);
  head_offset_ = RandomNumbers(NumHeads(settings), s(), random);
  bias_ = RandomNumbers(1, c(), random);
  attention_.head_scale = reinterpret_cast<const float*>(head_scale_.data());
  attention_.head_offset = reinterpret_cast<const float*>(head_offset_.data());
  if (settings.has_quadratic) {
    attention_.bias = reinterpret_cast<const float*>(bias_.data());
  }
}

void RandomLayer::FillUvz(int slot, int64_t position, float* uvz) const {
  RandomSource random(slot * 1'000'003 + position);
  const auto fill = [&](int64_t cols) {
    for (int64_t c = 0; c < Padded(cols); ++c) {
      *uvz++ = c < cols ? static_cast<float>(2 * random.Uniform() - 0.5) : 0;
    }
  };
  fill(e());
  fill(e());
  fill(s());
}

std::vector<Slots::Part> Slots::Parts(const Attention& attention,
                                      DataType cache, int64_t width) {
  const int64_t s = attention.query_key_size;
  const int64_t e = attention.expanded_size;
  const int64_t c = attention.chunk_size;
  std::vector<Part> parts(kShift + 1);
  const bool linear = attention.has_linear;
  parts[kU] = {.rows = s,
               .cols = e,
               .type = cache,
               .is_present = linear,
               .in_panels = true};
  parts[kSum] = {.rows = s, .cols = e, .is_present = linear, .in_panels = true};
  parts[kQuadK] = {.rows = s,
                   .cols = c,
                   .type = cache,
                   .is_present = attention.has_quadratic,
                   .in_panels = true,
                   .transposed = true};
  parts[kLinK] = {.rows = c, .cols = s, .type = cache, .is_present = linear};
  parts[kValue] = {.rows = c,
                   .cols = e,
                   .type = cache,
                   .is_present = true,
                   .in_panels = true};
  parts[kShift] = {
      .rows = kShiftRows, .cols = (width + 1) / 2, .is_present = true};
  size_t end = 64;
  for (Part& part : parts) {
    part.offset = end;
    if (part.is_present) end += (part.bytes() + 63) / 64 * 64 + 64;
  }
  return parts;
}

Slots::Slots(const Attention& attention, DataType cache, int num_slots,
             uint32_t stale, int64_t width)
    : cache_(cache),
      parts_(Parts(attention, cache, width)),
      stride_((parts_.back().offset + parts_.back().bytes() + 63) / 64 * 64),
      memory_(num_slots * stride_, stale) {}

LayerState Slots::state() const {
  const auto at = [&](Tensor tensor) {
    return parts_[tensor].is_present ? memory_.data() + parts_[tensor].offset
                                     : nullptr;
  };
  return {.u = at(kU),
          .sum = reinterpret_cast<float*>(at(kSum)),
          .quad_k = at(kQuadK),
          .lin_k = at(kLinK),
          .value = at(kValue),
          .shift = reinterpret_cast<float*>(at(kShift)),
          .slot_stride = stride_,
          .cache = cache_};
}

std::byte* Slots::Address(Tensor tensor, int slot, int64_t row,
                          int64_t col) const {
  const Part& part = parts_[tensor];
  if (part.transposed) std::swap(row, col);
  int64_t at = row * Padded(part.cols) + col;
  if (part.in_panels) {
    const int64_t panel = col / 64 * 64;
    const int64_t width = std::min<int64_t>(64, Padded(part.cols) - panel);
    at = panel * part.rows + row * width + (col - panel);
  }
  return memory_.data() + slot * stride_ + part.offset + at * SizeOf(part.type);
}

float Slots::Get(Tensor tensor, int slot, int64_t row, int64_t col) const {
  const size_t size = SizeOf(parts_[tensor].type);
  float number = 0;  // a bfloat16 is the upper half of one
  std::memcpy(reinterpret_cast<std::byte*>(&number) + sizeof(number) - size,
              Address(tensor, slot, row, col), size);
  return number;
}

void Slots::Set(Tensor tensor, int slot, int64_t row, int64_t col,
                float number) {
  number = RoundedTo(parts_[tensor].type, number);
  const size_t size = SizeOf(parts_[tensor].type);
  std::memcpy(Address(tensor, slot, row, col),
              reinterpret_cast<std::byte*>(&number) + sizeof(number) - size,
              size);
}

void Slots::FillRandom(Tensor tensor, int slot, int64_t first, int64_t last) {
  RandomSource random(slot * 31 + tensor);
  const int64_t cols = parts_[tensor].cols;
  for (int64_t row = first; row < last; ++row) {
    for (int64_t col = 0; col < Padded(cols); ++col) {
      Set(tensor, slot, row, col,
          col < cols ? static_cast<float>(3 * random.Uniform() - 1.5) : 0);
    }
  }
}

std::vector<std::byte> Slots::Bytes(int slot) const {
  const std::byte* begin = memory_.data() + slot * stride_;
  return {begin, begin + stride_};
}

std::vector<std::byte> Slots::Bytes(Tensor tensor, int slot) const {
  const std::byte* begin = Address(tensor, slot, 0, 0);
  return {begin, begin + parts_[tensor].bytes()};
}

LayerStep::LayerStep(const RandomLayer& layer,
                     const std::vector<PositionRun>& runs)
    : layer_(layer),
      step_(MakeStep(runs, layer.c())),
      uvz_(NumRows(runs), 2 * Padded(layer.e()) + Padded(layer.s())),
      quad_q_(NumRows(runs), layer.s()),
      lin_q_(NumRows(runs), layer.s()),
      cos_(NumRows(runs), layer.attention().rotary_size / 2),
      sin_(NumRows(runs), layer.attention().rotary_size / 2),
      gated_(NumRows(runs), layer.e()) {
  for (size_t n = 0; n < rows().size(); ++n) {
    const Row& row = rows()[n];
    layer.FillUvz(row.slot, row.position, uvz_.Row(n));
    for (int64_t k = 0; k < cos_.cols(); ++k) {
      const double angle = static_cast<double>(row.position) / (1.0 + 3.0 * k);
      cos_.Row(n)[k] = static_cast<float>(std::cos(angle));
      sin_.Row(n)[k] = static_cast<float>(std::sin(angle));
    }
  }
}

HeadRows LayerStep::heads() const {
  return {.uvz = uvz_.view(), .quad_q = quad_q_.view(), .lin_q = lin_q_.view()};
}

void LayerStep::AppendHeads(Backend& backend, const Slots& slots) const {
  backend.AppendHeads(layer_.attention(), slots.state(), cos_.view(),
                      sin_.view(), heads());
}

void LayerStep::Attend(Backend& backend, const Slots& slots,
                       std::span<const Fold> put_off) const {
  backend.Attend(layer_.attention(), slots.state(), heads(), put_off,
                 gated_.view());
}

void LayerStep::Run(Backend& backend, const Slots& slots) const {
  backend.BeginStep(view());
  AppendHeads(backend, slots);
  Attend(backend, slots);
}

}  // namespace flash
