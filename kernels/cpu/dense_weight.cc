#include "kernels/cpu/dense_weight.h"

#include <atomic>
#include <utility>

#include "kernels/cpu/kernel_table.h"
#include "kernels/dense_source.h"

namespace flash::cpu {
namespace {

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
  return finite.load() ? absl::OkStatus() : WeightIsNotFinite();
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

// As Pack(), but rounded to integers as backend.h says.
template <typename From>
bool PackInt8Output(const std::byte* row, int64_t inputs, int64_t lane,
                    std::byte* panel) {
  auto* head = reinterpret_cast<Int8PanelHead*>(panel);
  auto* weights = reinterpret_cast<int8_t*>(panel + sizeof(Int8PanelHead));
  int64_t sum = 0;
  const auto put = [&](int64_t k, int8_t rounded) {
    weights[(k / 4 * kPanel + lane) * 4 + k % 4] = rounded;
    sum += rounded;
  };
  if (!RoundOutputToInt8<From>(row, inputs, head->scale[lane], put)) {
    return false;
  }
  head->offset[lane] = static_cast<int32_t>(static_cast<uint32_t>(-128 * sum));
  return true;
}

template <typename From>
absl::Status PackInt8(const DenseSource& source, ThreadPool& pool,
                      std::byte* out) {
  const absl::Status depth = CheckDepth(source);
  if (!depth.ok()) return depth;
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

}  // namespace

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

DenseWeight::DenseWeight(const DenseSource& source,
                         std::unique_ptr<Buffer> memory)
    : Dense(PaddedOutputs(source), source.cols, memory->size()),
      type_(source.stored),
      memory_(std::move(memory)),
      bias_(PaddedBias(source)) {}

int64_t DenseWeight::num_panels() const {
  return (outputs() + kPanel - 1) / kPanel;
}

}  // namespace flash::cpu
