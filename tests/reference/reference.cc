#include "tests/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/model/weights.h"

namespace flash {
namespace {

using Vector = std::vector<double>;

std::string LayerName(int64_t layer, const std::string& name) {
  return absl::StrCat("layers.", layer, ".", name);
}

// A number of `fraction_bits` after the binary point and `exponent_bits`, from
// the definition of IEEE 754. No infinities: a model has none.
double FromBits(uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  const int exponent =
      static_cast<int>((bits >> fraction_bits) & ((1u << exponent_bits) - 1));
  const bool negative = (bits >> (exponent_bits + fraction_bits)) & 1;
  const double significand =
      std::ldexp(static_cast<double>(fraction), -fraction_bits) +
      (exponent == 0 ? 0.0 : 1.0);
  const double magnitude =
      std::ldexp(significand, std::max(exponent, 1) - bias);
  return negative ? -magnitude : magnitude;
}

Vector Numbers(const TensorView& tensor) {
  Vector numbers(tensor.num_elements());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t width = SizeOf(tensor.type);
    uint32_t bits = 0;
    std::memcpy(&bits, tensor.data + i * width, width);
    switch (tensor.type) {
      case DataType::kFloat32:
        numbers[i] = FromBits(bits, 8, 23);
        break;
      case DataType::kFloat16:
        numbers[i] = FromBits(bits, 5, 10);
        break;
      case DataType::kBFloat16:
        numbers[i] = FromBits(bits, 8, 7);
        break;
      case DataType::kInt8:  // no checkpoint's
        break;
    }
  }
  return numbers;
}

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// matrix · x + bias; no bias if it is empty.
Vector Affine(const Vector& matrix, const Vector& x, const Vector& bias) {
  Vector result(matrix.size() / x.size());
  for (size_t row = 0; row < result.size(); ++row) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i)
      sum += matrix[row * x.size() + i] * x[i];
    result[row] = sum + (bias.empty() ? 0.0 : bias[row]);
  }
  return result;
}

double MeanSquare(const Vector& x) { return Dot(x, x) / x.size(); }

Vector LayerNorm(const Vector& x, double eps) {
  double mean = 0;
  for (const double value : x) mean += value / x.size();
  Vector centred = x;
  for (double& value : centred) value -= mean;
  const double deviation = std::sqrt(MeanSquare(centred) + eps);
  for (double& value : centred) value /= deviation;
  return centred;
}

Vector Norm(const NormConfig& norm, const Vector& x, const Vector& weight,
            const Vector& bias) {
  using Type = NormConfig::Type;
  if (norm.type == Type::kNone) return x;
  Vector y = x;
  if (norm.type == Type::kLayerNorm) {
    y = LayerNorm(x, norm.eps);
  } else {
    const double r = norm.eps_mode == NormConfig::EpsMode::kAdd
                         ? std::sqrt(MeanSquare(x) + norm.eps)
                         : std::max(std::sqrt(MeanSquare(x)), norm.eps);
    for (double& value : y) value /= r;
  }
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] *= weight[norm.type == Type::kScaleNorm ? 0 : i];
    if (norm.type == Type::kLayerNorm) y[i] += bias[i];
  }
  return y;
}

Vector Rotate(const RopeConfig& rope, const Vector& x, int64_t position) {
  Vector y = x;
  for (int64_t k = 0; k < rope.size / 2; ++k) {
    const double frequency =
        std::pow(rope.base, -2.0 * static_cast<double>(k) /
                                static_cast<double>(rope.size));
    const double angle = static_cast<double>(position) * frequency;
    const bool halves = rope.layout == RopeConfig::Layout::kHalves;
    const int64_t first = halves ? k : 2 * k;
    const int64_t second = halves ? k + rope.size / 2 : 2 * k + 1;
    y[first] = x[first] * std::cos(angle) - x[second] * std::sin(angle);
    y[second] = x[second] * std::cos(angle) + x[first] * std::sin(angle);
  }
  return y;
}

double Activate(const QuadraticConfig& quadratic, double score) {
  if (quadratic.activation == QuadraticConfig::Activation::kReluSquared) {
    return score > 0 ? score * score : 0;
  }
  const double standardised =
      (score - quadratic.laplace_mean) / quadratic.laplace_std;
  return (1 + std::erf(standardised / std::sqrt(2.0))) / 2;
}

int64_t T5Bucket(int64_t distance, int64_t num_buckets, int64_t max_distance) {
  const int64_t max_exact = num_buckets / 2;
  if (distance < max_exact) return distance;
  const double exact = static_cast<double>(max_exact);
  const double scaled = std::log(static_cast<double>(distance) / exact) /
                        std::log(static_cast<double>(max_distance) / exact) *
                        static_cast<double>(num_buckets - max_exact);
  return max_exact + static_cast<int64_t>(
                         std::min(std::trunc(scaled), num_buckets - 1 - exact));
}

// Σ over the pairs of a rotated by distance·θ, times b.
double RopeToeplitz(const Vector& a, const Vector& b, double base,
                    int64_t distance) {
  const size_t half = a.size() / 2;
  double sum = 0;
  for (size_t k = 0; k < half; ++k) {
    const double angle = static_cast<double>(distance) *
                         std::pow(base, -2.0 * static_cast<double>(k) /
                                            static_cast<double>(a.size()));
    sum += (a[k] * b[k] + a[k + half] * b[k + half]) * std::cos(angle);
    sum -= (a[k + half] * b[k] - a[k] * b[k + half]) * std::sin(angle);
  }
  return sum;
}

}  // namespace

absl::StatusOr<Reference> Reference::Create(const ModelConfig& config,
                                            const Checkpoint& checkpoint) {
  const auto weights = CheckWeights(config, checkpoint);
  if (!weights.ok()) return weights.status();
  Reference reference(config);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    reference.tensors_[name] = Numbers(tensor);
  }
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    reference.biases_.push_back(reference.Bias(layer));
  }
  return reference;
}

const Vector& Reference::Tensor(const std::string& name) const {
  static const Vector& kNone = *new Vector;
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? kNone : found->second;
}

Vector Reference::Bias(int64_t layer) const {
  using Type = BiasConfig::Type;
  const BiasConfig& bias = config_.bias;
  const Vector& table = Tensor(LayerName(layer, "relative_bias.weight"));
  Vector numbers(config_.chunk_size);
  for (int64_t n = 0; n < config_.chunk_size; ++n) {
    if (bias.type == Type::kT5) {
      numbers[n] = table[T5Bucket(n, bias.num_buckets, bias.max_distance)];
    } else if (bias.type == Type::kToeplitz) {
      numbers[n] = table[bias.length - 1 - n];
    } else if (bias.type == Type::kRopeToeplitz) {
      numbers[n] = RopeToeplitz(Tensor(LayerName(layer, "relative_bias.a")),
                                Tensor(LayerName(layer, "relative_bias.b")),
                                bias.base, n);
    }
    numbers[n] *= bias.scale;
  }
  return numbers;
}

std::vector<Vector> Reference::Logits(std::span<const int32_t> ids) const {
  Sequence sequence = Start();
  std::vector<Vector> logits;
  for (const int32_t id : ids) logits.push_back(sequence.Step(id));
  return logits;
}

Vector Reference::Logprobs(std::span<const int32_t> ids) const {
  Sequence sequence = Start();
  Vector logprobs;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    logprobs.push_back(LogSoftmax(sequence.Step(ids[i]))[ids[i + 1]]);
  }
  return logprobs;
}

std::vector<int32_t> Reference::Greedy(std::span<const int32_t> prompt,
                                       int count) const {
  Sequence sequence = Start();
  Vector logits;
  for (const int32_t id : prompt) logits = sequence.Step(id);
  std::vector<int32_t> ids;
  while (static_cast<int>(ids.size()) < count) {
    const auto best = std::max_element(logits.begin(), logits.end());
    ids.push_back(static_cast<int32_t>(best - logits.begin()));
    if (static_cast<int>(ids.size()) < count)
      logits = sequence.Step(ids.back());
  }
  return ids;
}

Reference::Sequence::Sequence(const Reference* model) : model_(model) {
  const ModelConfig& config = model->config_;
  Memory memory;
  memory.previous.assign(config.hidden_size, 0.0);
  memory.past.assign(config.query_key_size, Vector(config.expanded_size, 0.0));
  memories_.assign(config.num_layers, memory);
}

Vector Reference::Sequence::Step(int32_t token) {
  const ModelConfig& config = model_->config_;
  Vector x = Embed(token);
  residual_stream_ = {x};
  for (int64_t l = 0; l < config.num_layers; ++l) {
    const Vector added = Layer(l, x);
    for (size_t i = 0; i < x.size(); ++i) x[i] += added[i];
    residual_stream_.push_back(x);
  }
  ++t_;
  const Vector y =
      Norm(config.final_norm, x, model_->Tensor("final_norm.weight"),
           model_->Tensor("final_norm.bias"));
  return Affine(model_->Tensor(config.lm_head.tied ? "embedding.weight"
                                                   : "lm_head.weight"),
                y, model_->Tensor("lm_head.bias"));
}

Vector Reference::Sequence::Embed(int32_t token) const {
  using Position = EmbeddingConfig::Position;
  const EmbeddingConfig& embedding = model_->config_.embedding;
  const Vector& table = model_->Tensor("embedding.weight");
  const Vector& scale = model_->Tensor("position.scale");
  const Vector& positions = model_->Tensor("position.weight");
  const int64_t d = model_->config_.hidden_size;
  Vector x(d);
  for (int64_t i = 0; i < d; ++i) {
    x[i] = table[token * d + i] * embedding.scale;
    if (embedding.position == Position::kSinusoidal) {
      const auto k = static_cast<double>(i % (d / 2));
      const double angle = static_cast<double>(t_) *
                           std::pow(embedding.position_base, -2 * k / d);
      x[i] += scale[0] * (i < d / 2 ? std::sin(angle) : std::cos(angle));
    } else if (embedding.position == Position::kLearned) {
      x[i] += positions[t_ * d + i];
    }
  }
  return x;
}

Vector Reference::Sequence::Layer(int64_t l, const Vector& x) {
  const ModelConfig& config = model_->config_;
  const int64_t e = config.expanded_size;
  Vector uvz =
      Affine(model_->Tensor(LayerName(l, "uvz.weight")), ShiftedNorm(l, x),
             model_->Tensor(LayerName(l, "uvz.bias")));
  for (double& value : uvz) value /= 1 + std::exp(-value);  // SiLU
  const Vector gate(uvz.begin(), uvz.begin() + e);
  const Vector value(uvz.begin() + e, uvz.begin() + 2 * e);
  const Heads heads = MakeHeads(l, Vector(uvz.begin() + 2 * e, uvz.end()));

  Memory& memory = memories_[l];
  memory.quad_keys.push_back(heads.quad_k);
  memory.lin_keys.push_back(heads.lin_k);
  memory.values.push_back(value);
  Vector gated(e, 0.0);
  if (config.quadratic.has_value()) gated = Local(l, heads.quad_q);
  if (config.linear.has_value()) {
    const Vector global = Global(l, heads.lin_q);
    for (int64_t i = 0; i < e; ++i) gated[i] += global[i];
  }
  if ((t_ + 1) % config.chunk_size == 0) CloseChunk(l);

  for (int64_t i = 0; i < e; ++i) gated[i] *= gate[i];
  return Affine(model_->Tensor(LayerName(l, "output.weight")), gated,
                model_->Tensor(LayerName(l, "output.bias")));
}

Vector Reference::Sequence::ShiftedNorm(int64_t l, const Vector& x) {
  const ModelConfig& config = model_->config_;
  const Vector y =
      Norm(config.norm, x, model_->Tensor(LayerName(l, "norm.weight")),
           model_->Tensor(LayerName(l, "norm.bias")));
  const Vector previous = std::exchange(memories_[l].previous, y);
  if (!config.token_shift) return y;
  Vector shifted = y;
  const int64_t half = (config.hidden_size + 1) / 2;
  for (int64_t i = 0; i < half; ++i) shifted[i] = previous[i];
  return shifted;
}

Reference::Sequence::Heads Reference::Sequence::MakeHeads(
    int64_t l, const Vector& z) const {
  const ModelConfig& config = model_->config_;
  const Vector& scale = model_->Tensor(LayerName(l, "head_scale"));
  const Vector& offset = model_->Tensor(LayerName(l, "head_offset"));
  Heads heads;
  std::vector<Vector*> order;
  if (config.quadratic.has_value()) order = {&heads.quad_q, &heads.quad_k};
  if (config.linear.has_value()) {
    order.push_back(&heads.lin_q);
    order.push_back(&heads.lin_k);
  }
  for (size_t h = 0; h < order.size(); ++h) {
    Vector& head = *order[h];
    for (size_t i = 0; i < z.size(); ++i) {
      head.push_back(z[i] * scale[h * z.size() + i] + offset[h * z.size() + i]);
    }
    if (!config.rope.has_value()) continue;
    const bool in_chunk = config.rope->position == RopeConfig::Position::kChunk;
    head = Rotate(*config.rope, head, in_chunk ? t_ % config.chunk_size : t_);
  }
  return heads;
}

Vector Reference::Sequence::Local(int64_t l, const Vector& query) {
  const QuadraticConfig& quadratic = *model_->config_.quadratic;
  const Memory& memory = memories_[l];
  const size_t i = memory.values.size() - 1;
  Vector o(model_->config_.expanded_size, 0.0);
  for (size_t j = 0; j <= i; ++j) {
    const double score =
        quadratic.score_scale * Dot(query, memory.quad_keys[j]) +
        model_->biases_[l][i - j];
    double weight = quadratic.weight_scale * Activate(quadratic, score);
    if (quadratic.row_mean) weight /= static_cast<double>(i + 1);
    for (size_t n = 0; n < o.size(); ++n) o[n] += weight * memory.values[j][n];
  }
  return o;
}

Vector Reference::Sequence::Global(int64_t l, const Vector& query) {
  const LinearConfig& linear = *model_->config_.linear;
  const int64_t chunk_size = model_->config_.chunk_size;
  const int64_t closed = t_ / chunk_size;
  Vector o(model_->config_.expanded_size, 0.0);
  if (closed == 0) return o;
  double scale = linear.scale;
  if (linear.mean_past) scale /= static_cast<double>(closed * chunk_size);
  for (size_t k = 0; k < query.size(); ++k) {
    for (size_t n = 0; n < o.size(); ++n) {
      o[n] += scale * query[k] * memories_[l].past[k][n];
    }
  }
  return o;
}

void Reference::Sequence::CloseChunk(int64_t l) {
  Memory& memory = memories_[l];
  for (size_t j = 0; j < memory.values.size(); ++j) {
    const Vector& key = memory.lin_keys[j];  // empty without `linear`
    for (size_t k = 0; k < key.size(); ++k) {
      for (size_t n = 0; n < memory.values[j].size(); ++n) {
        memory.past[k][n] += key[k] * memory.values[j][n];
      }
    }
  }
  memory.quad_keys.clear();
  memory.lin_keys.clear();
  memory.values.clear();
}

Vector LogSoftmax(const Vector& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  Vector logprobs = logits;
  for (double& logprob : logprobs) logprob -= largest + std::log(sum);
  return logprobs;
}

}  // namespace flash
