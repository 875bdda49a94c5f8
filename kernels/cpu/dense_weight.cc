#include "kernels/cpu/dense_weight.h"

#include <atomic>
#include <cstring>
#include <utility>

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

// One output's weights go to every kPanel-th place of its panel. `group` is how
// many inputs stand side by side: 1, or 2 for bfloat16.
template <typename From, typename To>
bool PackOutput(const std::byte* row, int64_t inputs, int64_t group,
                typename To::Type* panel) {
  bool finite = true;
  for (int64_t k = 0; k < inputs; ++k) {
    From number;
    std::memcpy(&number, row + k * sizeof(From), sizeof(From));
    const typename To::Type bits = To::Narrow(Widen(number));
    finite &= To::IsFinite(bits);
    panel[k / group * group * kPanel + k % group] = bits;
  }
  return finite;
}

template <typename From, typename To>
absl::Status Pack(const DenseSource& source, ThreadPool& pool, std::byte* out) {
  using Stored = typename To::Type;
  const int64_t group = sizeof(Stored) == 2 ? 2 : 1;
  const std::vector<const std::byte*> rows = OutputRows(source);
  const int64_t panel_size = (source.cols + group - 1) / group * group * kPanel;
  const int64_t num_outputs = static_cast<int64_t>(rows.size());
  std::atomic<bool> finite{true};
  const auto pack_panel = [&](int panel, int) {
    Stored* to = reinterpret_cast<Stored*>(out) + panel * panel_size;
    for (int64_t n = 0; n < kPanel; ++n) {
      const int64_t output = panel * kPanel + n;
      if (output >= num_outputs || rows[output] == nullptr) continue;
      if (!PackOutput<From, To>(rows[output], source.cols, group,
                                to + n * group)) {
        finite.store(false);
      }
    }
  };
  pool.ParallelFor(static_cast<int>((num_outputs + kPanel - 1) / kPanel),
                   pack_panel);
  if (finite.load()) return absl::OkStatus();
  return absl::InvalidArgumentError("a weight is not a finite number");
}

template <typename To>
absl::Status PackTo(const DenseSource& source, ThreadPool& pool,
                    std::byte* out) {
  switch (source.type) {
    case DataType::kFloat32:
      return Pack<float, To>(source, pool, out);
    case DataType::kFloat16:
      return Pack<Float16, To>(source, pool, out);
    case DataType::kBFloat16:
      return Pack<uint16_t, To>(source, pool, out);
  }
  return absl::InternalError("no such type");
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
  const int64_t inputs = source.stored == DataType::kFloat32
                             ? source.cols
                             : (source.cols + 1) / 2 * 2;
  return panels * kPanel * inputs * SizeOf(source.stored);
}

absl::Status PackPanels(const DenseSource& source, ThreadPool& pool,
                        std::byte* out) {
  if (source.stored == DataType::kFloat32) {
    return PackTo<Float32Bits>(source, pool, out);
  }
  return PackTo<BFloat16Bits>(source, pool, out);
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
