#include "kernels/cpu/dense_weight.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "kernels/cpu/kernel_table.h"

namespace flash::cpu {
namespace {

constexpr uint32_t kExponent = 0x7f800000;  // of a float32

struct Float16 {  // clang 14 has no such type for x86
  uint16_t bits;
};

// Bits of one number of the checkpoint's type, as those of a float32.
template <typename T>
uint32_t Widen(T number);

template <>
uint32_t Widen(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}
template <>
uint32_t Widen(Float16 number) {
  const uint32_t sign = static_cast<uint32_t>(number.bits & 0x8000) << 16;
  const uint32_t exponent = number.bits >> 10 & 0x1f;
  const uint32_t mantissa = number.bits & 0x3ff;
  if (exponent == 0x1f) return sign | kExponent | mantissa << 13;
  if (exponent > 0) return sign | (exponent + 112) << 23 | mantissa << 13;
  return sign | Widen(static_cast<float>(mantissa) * 0x1p-24f);  // a denormal
}
template <>
uint32_t Widen(uint16_t number) {  // bfloat16
  return static_cast<uint32_t>(number) << 16;
}

// The stored type's bits. What is not finite stays so.
struct Float32Bits {
  using Type = uint32_t;
  static Type Narrow(uint32_t bits) { return bits; }
  static bool IsFinite(Type bits) { return (bits & kExponent) != kExponent; }
};
struct BFloat16Bits {
  using Type = uint16_t;
  static Type Narrow(uint32_t bits) {
    if ((bits & kExponent) == kExponent) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;  // nearest, ties to even
  }
  static bool IsFinite(Type bits) { return (bits & 0x7f80) != 0x7f80; }
};

// Where each output's weights begin in host memory; null for padding.
std::vector<const std::byte*> OutputRows(const DenseSource& source) {
  std::vector<const std::byte*> rows;
  const size_t row_bytes = source.cols * SizeOf(source.type);
  for (const WeightRows& segment : source.segments) {
    for (int64_t row = 0; row < Padded(segment.rows); ++row) {
      rows.push_back(row < segment.rows ? segment.data + row * row_bytes
                                        : nullptr);
    }
  }
  return rows;
}

// Number k of an output's weights, as the bits of a float32.
template <typename From>
uint32_t WidenedBits(const std::byte* row, int64_t k) {
  From number;
  std::memcpy(&number, row + k * sizeof(From), sizeof(From));
  return Widen(number);
}

// Calls pack(row, panel, lane) for each output that is not padding: its weights
// in host memory, and its place. INVALID_ARGUMENT if one returns false: that it
// met a number that is not finite.
template <typename F>
absl::Status PackOutputs(const DenseSource& source, ThreadPool& pool,
                         F&& pack) {
  const std::vector<const std::byte*> rows = OutputRows(source);
  const int64_t num_outputs = static_cast<int64_t>(rows.size());
  std::atomic<bool> finite{true};
  const auto pack_panel = [&](int panel, int) {
    for (int64_t lane = 0; lane < kPanel; ++lane) {
      const int64_t output = panel * kPanel + lane;
      if (output >= num_outputs || rows[output] == nullptr) continue;
      if (!pack(rows[output], panel, lane)) finite.store(false);
    }
  };
  pool.ParallelFor(static_cast<int>((num_outputs + kPanel - 1) / kPanel),
                   pack_panel);
  if (finite.load()) return absl::OkStatus();
  return absl::InvalidArgumentError("a weight is not a finite number");
}

// One output's weights go to every kPanel-th place of its panel. `group` is how
// many inputs stand side by side: 1, or 2 for bfloat16.
template <typename From, typename To>
bool PackOutput(const std::byte* row, int64_t inputs, int64_t group,
                typename To::Type* panel) {
  bool finite = true;
  for (int64_t k = 0; k < inputs; ++k) {
    const typename To::Type bits = To::Narrow(WidenedBits<From>(row, k));
    finite &= To::IsFinite(bits);
    panel[k / group * group * kPanel + k % group] = bits;
  }
  return finite;
}

template <typename From, typename To>
absl::Status Pack(const DenseSource& source, ThreadPool& pool, std::byte* out) {
  using Stored = typename To::Type;
  const int64_t group = sizeof(Stored) == 2 ? 2 : 1;
  const int64_t panel_size = (source.cols + group - 1) / group * group * kPanel;
  return PackOutputs(
      source, pool, [&](const std::byte* row, int64_t panel, int64_t lane) {
        return PackOutput<From, To>(
            row, source.cols, group,
            reinterpret_cast<Stored*>(out) + panel * panel_size + lane * group);
      });
}

float FromBits(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

// As Pack(), but rounded to integers as backend.h says.
template <typename From>
bool PackInt8Output(const std::byte* row, int64_t inputs, int64_t lane,
                    std::byte* panel) {
  uint32_t largest = 0;  // magnitudes are in the order of their bits
  for (int64_t k = 0; k < inputs; ++k) {
    largest = std::max(largest, WidenedBits<From>(row, k) & 0x7fffffff);
  }
  if (largest >= kExponent) return false;
  const float scale = FromBits(largest) / 127;
  if (scale < kLeastInt8Scale) return true;  // all remains 0
  const float inverse = 1 / scale;
  auto* head = reinterpret_cast<Int8PanelHead*>(panel);
  auto* weights = reinterpret_cast<int8_t*>(panel + sizeof(Int8PanelHead));
  int64_t sum = 0;
  for (int64_t k = 0; k < inputs; ++k) {
    const float weight = FromBits(WidenedBits<From>(row, k));
    const auto rounded = static_cast<int8_t>(std::lrint(weight * inverse));
    weights[(k / 4 * kPanel + lane) * 4 + k % 4] = rounded;
    sum += rounded;
  }
  head->scale[lane] = scale;
  head->offset[lane] = static_cast<int32_t>(static_cast<uint32_t>(-128 * sum));
  return true;
}

template <typename From>
absl::Status PackInt8(const DenseSource& source, ThreadPool& pool,
                      std::byte* out) {
  if (source.cols > kMaxInt8Inputs) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", source.cols, " inputs; int8 weights may have ",
                     kMaxInt8Inputs));
  }
  return PackOutputs(
      source, pool, [&](const std::byte* row, int64_t panel, int64_t lane) {
        return PackInt8Output<From>(row, source.cols, lane,
                                    out + panel * Int8PanelBytes(source.cols));
      });
}

template <typename From>
absl::Status PackFrom(const DenseSource& source, ThreadPool& pool,
                      std::byte* out) {
  switch (source.stored) {
    case DataType::kFloat32:
      return Pack<From, Float32Bits>(source, pool, out);
    case DataType::kBFloat16:
      return Pack<From, BFloat16Bits>(source, pool, out);
    case DataType::kInt8:
      return PackInt8<From>(source, pool, out);
    case DataType::kFloat16:
      break;
  }
  return absl::InternalError("weights are not kept in this type");
}

std::vector<float> PaddedBias(const DenseSource& source, int64_t outputs) {
  std::vector<float> bias(outputs, 0);
  if (source.bias.empty()) return bias;
  size_t from = 0;
  int64_t to = 0;
  for (const WeightRows& segment : source.segments) {
    for (int64_t row = 0; row < segment.rows; ++row) {
      bias[to + row] = source.bias[from++];
    }
    to += Padded(segment.rows);
  }
  FLASH_CHECK(from == source.bias.size());
  return bias;
}

}  // namespace

int64_t PaddedOutputs(const DenseSource& source) {
  int64_t outputs = 0;
  for (const WeightRows& segment : source.segments) {
    outputs += Padded(segment.rows);
  }
  return outputs;
}

size_t PanelBytes(const DenseSource& source) {
  const int64_t panels = (PaddedOutputs(source) + kPanel - 1) / kPanel;
  if (source.stored == DataType::kInt8) {
    return panels * Int8PanelBytes(source.cols);
  }
  const int64_t inputs = source.stored == DataType::kFloat32
                             ? source.cols
                             : (source.cols + 1) / 2 * 2;
  return panels * kPanel * inputs * SizeOf(source.stored);
}

absl::Status PackPanels(const DenseSource& source, ThreadPool& pool,
                        std::byte* out) {
  switch (source.type) {
    case DataType::kFloat32:
      return PackFrom<float>(source, pool, out);
    case DataType::kFloat16:
      return PackFrom<Float16>(source, pool, out);
    case DataType::kBFloat16:
      return PackFrom<uint16_t>(source, pool, out);
    case DataType::kInt8:
      break;
  }
  return absl::InternalError("a checkpoint's weights are not of this type");
}

DenseWeight::DenseWeight(const DenseSource& source, int64_t outputs,
                         std::unique_ptr<Buffer> memory)
    : Dense(outputs, source.cols, memory->size()),
      type_(source.stored),
      memory_(std::move(memory)),
      bias_(PaddedBias(source, outputs)) {}

int64_t DenseWeight::num_panels() const {
  return (outputs() + kPanel - 1) / kPanel;
}

}  // namespace flash::cpu
