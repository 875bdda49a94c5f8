#include "kernels/cuda/dense_weight.h"

#include <cstring>

#include "kernels/check.h"

namespace flash::cuda {
namespace {

// Writes one output's weights. Returns false if one is not finite.
template <typename From, typename To>
bool PackOutput(const std::byte* row, int64_t inputs, std::byte* out) {
  bool finite = true;
  auto* to = reinterpret_cast<typename To::Type*>(out);
  for (int64_t k = 0; k < inputs; ++k) {
    to[k] = To::Narrow(WidenedBits<From>(row, k));
    finite &= To::IsFinite(to[k]);
  }
  return finite;
}

template <typename From>
bool PackOutputAs(DataType stored, const std::byte* row, int64_t inputs,
                  std::byte* out, float& scale) {
  switch (stored) {
    case DataType::kFloat32:
      return PackOutput<From, Float32Bits>(row, inputs, out);
    case DataType::kBFloat16:
      return PackOutput<From, BFloat16Bits>(row, inputs, out);
    case DataType::kInt8:
      return RoundOutputToInt8<From>(
          row, inputs, scale, [&](int64_t k, int8_t integer) {
            reinterpret_cast<int8_t*>(out)[k] = integer;
          });
    case DataType::kFloat16:
      break;
  }
  FLASH_CHECK(false);  // weights are not kept in this type
  return false;
}

bool PackOutput(const DenseSource& source, const std::byte* row, std::byte* out,
                float& scale) {
  switch (source.type) {
    case DataType::kFloat32:
      return PackOutputAs<float>(source.stored, row, source.cols, out, scale);
    case DataType::kFloat16:
      return PackOutputAs<Float16>(source.stored, row, source.cols, out, scale);
    case DataType::kBFloat16:
      return PackOutputAs<uint16_t>(source.stored, row, source.cols, out,
                                    scale);
    case DataType::kInt8:
      break;
  }
  FLASH_CHECK(false);  // a checkpoint's weights are not of this type
  return false;
}

}  // namespace

DenseParts::DenseParts(const DenseSource& source)
    : outputs(PaddedOutputs(source)),
      row_bytes(Padded(source.cols) *
                static_cast<int64_t>(SizeOf(source.stored))),
      bias(outputs * row_bytes),
      scales(bias + outputs * sizeof(float)),
      size(scales +
           (source.stored == DataType::kInt8 ? outputs * sizeof(float) : 0)) {}

absl::StatusOr<std::vector<std::byte>> PackWeights(const DenseSource& source) {
  const absl::Status depth = CheckDepth(source);
  if (!depth.ok()) return depth;
  const DenseParts parts(source);
  std::vector<std::byte> bytes(parts.size);
  const std::vector<const std::byte*> rows = OutputRows(source);
  std::vector<float> scales(parts.outputs, 0);
  for (int64_t n = 0; n < parts.outputs; ++n) {
    if (rows[n] == nullptr) continue;
    if (!PackOutput(source, rows[n], bytes.data() + n * parts.row_bytes,
                    scales[n])) {
      return WeightIsNotFinite();
    }
  }
  const std::vector<float> bias = PaddedBias(source);
  std::memcpy(bytes.data() + parts.bias, bias.data(),
              bias.size() * sizeof(float));
  std::memcpy(bytes.data() + parts.scales, scales.data(),
              parts.size - parts.scales);
  return bytes;
}

}  // namespace flash::cuda
