#include "server/model/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/check.h"

namespace flash {
namespace {

using Shape = std::vector<int64_t>;

std::string ToString(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Takes tensors out of a checkpoint by name and remembers the first mistake.
class TensorTaker {
 public:
  explicit TensorTaker(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint) {}

  TensorView Require(const std::string& name, const Shape& shape) {
    if (auto tensor = TakeIfThere(name, shape)) return *std::move(tensor);
    Fail(absl::StrCat("tensor \"", name, "\" is missing; expected is shape ",
                      ToString(shape)));
    return {};
  }

  std::optional<TensorView> TakeIfThere(const std::string& name,
                                        const Shape& shape) {
    taken_.insert(name);
    const TensorView* tensor = checkpoint_.Find(name);
    if (tensor == nullptr) return std::nullopt;
    if (tensor->shape != shape) {
      Fail(absl::StrCat("tensor \"", name, "\" has shape ",
                        ToString(tensor->shape), "; expected is ",
                        ToString(shape)));
    }
    return *tensor;
  }

  void RefuseOthers() {
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (taken_.contains(name)) continue;
      Fail(absl::StrCat("tensor \"", name, "\" of shape ",
                        ToString(tensor.shape),
                        " has no place in the model that config.json "
                        "describes; expected is no such tensor"));
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  void Fail(const std::string& problem) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat(checkpoint_.directory(), ": ", problem));
  }

  const Checkpoint& checkpoint_;
  std::set<std::string, std::less<>> taken_;
  absl::Status status_;
};

struct NormTensors {
  std::optional<TensorView> weight;
  std::optional<TensorView> bias;
};

NormTensors TakeNorm(TensorTaker& taker, const std::string& prefix,
                     const NormConfig& norm, int64_t hidden_size) {
  using Type = NormConfig::Type;
  NormTensors tensors;
  if (norm.type == Type::kNone) return tensors;
  const int64_t size = norm.type == Type::kScaleNorm ? 1 : hidden_size;
  tensors.weight = taker.Require(prefix + "weight", {size});
  if (norm.type == Type::kLayerNorm) {
    tensors.bias = taker.Require(prefix + "bias", {size});
  }
  return tensors;
}

void TakeRelativeBias(TensorTaker& taker, const std::string& prefix,
                      const ModelConfig& config, LayerTensors& layer) {
  const BiasConfig& bias = config.bias;
  switch (bias.type) {
    case BiasConfig::Type::kNone:
      return;
    case BiasConfig::Type::kT5:
      layer.relative_bias =
          taker.Require(prefix + "weight", {bias.num_buckets});
      return;
    case BiasConfig::Type::kToeplitz:
      layer.relative_bias =
          taker.Require(prefix + "weight", {2 * bias.length - 1});
      return;
    case BiasConfig::Type::kRopeToeplitz:
      layer.relative_bias_a =
          taker.Require(prefix + "a", {config.query_key_size});
      layer.relative_bias_b =
          taker.Require(prefix + "b", {config.query_key_size});
      return;
  }
}

LayerTensors TakeLayer(TensorTaker& taker, const ModelConfig& config,
                       int64_t index) {
  const int64_t d = config.hidden_size;
  const int64_t e = config.expanded_size;
  const int64_t s = config.query_key_size;
  const std::string prefix = absl::StrCat("layers.", index, ".");
  LayerTensors layer;
  NormTensors norm = TakeNorm(taker, prefix + "norm.", config.norm, d);
  layer.norm_weight = std::move(norm.weight);
  layer.norm_bias = std::move(norm.bias);
  layer.uvz_weight = taker.Require(prefix + "uvz.weight", {2 * e + s, d});
  layer.uvz_bias = taker.TakeIfThere(prefix + "uvz.bias", {2 * e + s});
  const Shape heads = {config.num_heads(), s};
  layer.head_scale = taker.Require(prefix + "head_scale", heads);
  layer.head_offset = taker.Require(prefix + "head_offset", heads);
  TakeRelativeBias(taker, prefix + "relative_bias.", config, layer);
  layer.output_weight = taker.Require(prefix + "output.weight", {d, e});
  layer.output_bias = taker.TakeIfThere(prefix + "output.bias", {d});
  return layer;
}

void TakePosition(TensorTaker& taker, const ModelConfig& config,
                  CheckpointWeights& weights) {
  using Position = EmbeddingConfig::Position;
  if (config.embedding.position == Position::kSinusoidal) {
    weights.position_scale = taker.Require("position.scale", {1});
  }
  if (config.embedding.position == Position::kLearned) {
    weights.position_weight = taker.Require(
        "position.weight", {*config.max_length, config.hidden_size});
  }
}

// A number is finite unless its exponent bits are all ones. With the sign bit
// cleared, adding one to the exponent then sets the sign bit and never carries
// into the next number: so eight bytes are tested at once, whatever the type.
struct ExponentTest {
  uint64_t without_signs;
  uint64_t one_exponent;
};

ExponentTest ExponentTestOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return {0x7fffffff7fffffff, 0x0080000000800000};
    case DataType::kFloat16:
      return {0x7fff7fff7fff7fff, 0x0400040004000400};
    case DataType::kBFloat16:
      return {0x7fff7fff7fff7fff, 0x0080008000800080};
    case DataType::kInt8:  // no checkpoint's
      break;
  }
  FLASH_CHECK(false);
}

// Whether all of the `num_bytes` are parts of finite numbers.
bool AllFinite(const std::byte* data, size_t num_bytes, ExponentTest test) {
  uint64_t sums = 0;
  size_t offset = 0;
  for (; offset + sizeof(uint64_t) <= num_bytes; offset += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, data + offset, sizeof word);
    sums |= (word & test.without_signs) + test.one_exponent;
  }
  uint64_t last = 0;  // zeros, which are finite, after what is left
  // An empty tensor of an empty file has no address to copy from.
  if (offset < num_bytes) std::memcpy(&last, data + offset, num_bytes - offset);
  sums |= (last & test.without_signs) + test.one_exponent;
  return (sums & ~test.without_signs) == 0;
}

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: the fraction counts 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

float BFloat16ToFloat(uint16_t number) {
  return std::bit_cast<float>(static_cast<uint32_t>(number) << 16);
}

template <float (*kWiden)(uint16_t)>
void Widen(const std::byte* data, std::vector<float>& numbers) {
  for (float& number : numbers) {
    uint16_t narrow;
    std::memcpy(&narrow, data, sizeof narrow);
    number = kWiden(narrow);
    data += sizeof narrow;
  }
}

int64_t T5Bucket(int64_t distance, const BiasConfig& bias) {
  const int64_t max_exact = bias.num_buckets / 2;
  if (distance < max_exact) return distance;
  const auto exact = static_cast<double>(max_exact);
  const double share = std::log(static_cast<double>(distance) / exact) /
                       std::log(static_cast<double>(bias.max_distance) / exact);
  const double beyond =
      share * static_cast<double>(bias.num_buckets - max_exact);
  return std::min(bias.num_buckets - 1,
                  max_exact + static_cast<int64_t>(beyond));
}

double RopeToeplitzBias(int64_t distance, double base,
                        const std::vector<float>& a,
                        const std::vector<float>& b) {
  const size_t half = a.size() / 2;
  double sum = 0;
  for (size_t k = 0; k < half; ++k) {
    const double theta = std::pow(
        base, -2.0 * static_cast<double>(k) / static_cast<double>(a.size()));
    const double angle = static_cast<double>(distance) * theta;
    const double a1 = a[k], a2 = a[half + k], b1 = b[k], b2 = b[half + k];
    sum += (a1 * b1 + a2 * b2) * std::cos(angle) -
           (a2 * b1 - a1 * b2) * std::sin(angle);
  }
  return sum;
}

// The bias vector before it is scaled and rounded.
std::vector<double> UnscaledBias(const ModelConfig& config,
                                 const LayerTensors& layer) {
  using Type = BiasConfig::Type;
  const BiasConfig& bias = config.bias;
  std::vector<double> numbers(config.chunk_size);
  if (bias.type == Type::kRopeToeplitz) {
    const std::vector<float> a = ToFloat32(*layer.relative_bias_a);
    const std::vector<float> b = ToFloat32(*layer.relative_bias_b);
    for (int64_t n = 0; n < config.chunk_size; ++n) {
      numbers[n] = RopeToeplitzBias(n, bias.base, a, b);
    }
    return numbers;
  }
  const std::vector<float> table = ToFloat32(*layer.relative_bias);
  for (int64_t n = 0; n < config.chunk_size; ++n) {
    numbers[n] = bias.type == Type::kT5 ? table[T5Bucket(n, bias)]
                                        : table[bias.length - 1 - n];
  }
  return numbers;
}

}  // namespace

absl::StatusOr<CheckpointWeights> CheckWeights(const ModelConfig& config,
                                               const Checkpoint& checkpoint) {
  const Shape table = {config.vocab_size, config.hidden_size};
  TensorTaker taker(checkpoint);
  CheckpointWeights weights;
  weights.embedding = taker.Require("embedding.weight", table);
  TakePosition(taker, config, weights);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(TakeLayer(taker, config, layer));
  }
  NormTensors norm =
      TakeNorm(taker, "final_norm.", config.final_norm, config.hidden_size);
  weights.final_norm_weight = std::move(norm.weight);
  weights.final_norm_bias = std::move(norm.bias);
  if (!config.lm_head.tied) {
    weights.lm_head_weight = taker.Require("lm_head.weight", table);
  }
  weights.lm_head_bias = taker.TakeIfThere("lm_head.bias", {config.vocab_size});
  taker.RefuseOthers();
  if (!taker.status().ok()) return taker.status();
  return weights;
}

absl::Status CheckFinite(const std::string& name, const TensorView& tensor) {
  const ExponentTest test = ExponentTestOf(tensor.type);
  if (AllFinite(tensor.data, tensor.num_bytes(), test)) {
    return absl::OkStatus();
  }
  const size_t width = SizeOf(tensor.type);
  size_t element = 0;
  while (AllFinite(tensor.data + element * width, width, test)) ++element;
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor \"", name, "\": element ", element, " is not a finite number"));
}

std::vector<float> ToFloat32(const TensorView& tensor) {
  std::vector<float> numbers(tensor.num_elements());
  if (numbers.empty()) return numbers;
  switch (tensor.type) {
    case DataType::kFloat32:
      std::memcpy(numbers.data(), tensor.data, tensor.num_bytes());
      break;
    case DataType::kFloat16:
      Widen<HalfToFloat>(tensor.data, numbers);
      break;
    case DataType::kBFloat16:
      Widen<BFloat16ToFloat>(tensor.data, numbers);
      break;
    case DataType::kInt8:
      FLASH_CHECK(false);
  }
  return numbers;
}

absl::StatusOr<std::vector<float>> BiasVector(const ModelConfig& config,
                                              const CheckpointWeights& weights,
                                              int64_t layer) {
  if (config.bias.type == BiasConfig::Type::kNone) return std::vector<float>();
  const std::vector<double> unscaled =
      UnscaledBias(config, weights.layers[layer]);
  std::vector<float> bias(unscaled.size());
  for (size_t n = 0; n < bias.size(); ++n) {
    bias[n] = static_cast<float>(config.bias.scale * unscaled[n]);
    if (std::isfinite(bias[n])) continue;
    return absl::InvalidArgumentError(absl::StrCat("layer ", layer,
                                                   ": the bias of distance ", n,
                                                   " is not a finite float32"));
  }
  return bias;
}

}  // namespace flash
