#include "tests/reference/random_model.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/model/checkpoint.h"
#include "tests/reference/model_writer.h"
#include "tests/reference/random_source.h"
#include "tests/reference/reference.h"

namespace flash {
namespace {

NormConfig RandomNorm(RandomSource& random) {
  using Type = NormConfig::Type;
  NormConfig norm;
  norm.type = random.OneOf({Type::kScaleNorm, Type::kScaleNorm,
                            Type::kLayerNorm, Type::kRmsNorm, Type::kNone});
  if (norm.type == Type::kNone) return norm;
  norm.eps = random.OneOf({1e-5, 1e-12, 0.01, 0.5});
  if (norm.type != Type::kLayerNorm) {
    norm.eps_mode =
        random.OneOf({NormConfig::EpsMode::kAdd, NormConfig::EpsMode::kClamp});
  }
  return norm;
}

void DrawSizes(RandomSource& random, ModelConfig& config) {
  config.vocab_size = random.Integer(2, 131);
  config.hidden_size = random.Integer(1, 70);
  config.expanded_size = random.Integer(1, 90);
  config.query_key_size = random.Integer(1, 40);
  config.num_layers = random.Integer(1, 3);
  config.chunk_size = random.OneOf({1, 2, 3, 7, 8, 13, 16, 17, 31, 32});
  if (random.Chance(0.2)) {
    config.tokenizer.type = TokenizerConfig::Type::kBytes;
    config.vocab_size += 256;
  }
  if (random.Chance(0.3)) config.trained_length = 3 * config.chunk_size;
  const int64_t last_id = config.vocab_size - 1;
  if (random.Chance(0.5)) config.bos_token_id = random.Integer(0, last_id);
  for (int64_t n = random.Integer(0, 2); n > 0; --n) {
    config.eos_token_ids.push_back(random.Integer(0, last_id));
  }
}

void DrawEmbedding(RandomSource& random, ModelConfig& config) {
  using Position = EmbeddingConfig::Position;
  EmbeddingConfig& embedding = config.embedding;
  embedding.scale = random.OneOf({1.0, 1.0, 0.25, 8.0});
  embedding.position = random.OneOf(
      {Position::kNone, Position::kSinusoidal, Position::kLearned});
  if (embedding.position == Position::kSinusoidal) {
    embedding.position_base = random.OneOf({10000.0, 500.0});
    config.hidden_size += config.hidden_size % 2;
  }
  if (embedding.position == Position::kLearned || random.Chance(0.2)) {
    config.max_length =
        std::max<int64_t>(128, 6 * config.chunk_size) + random.Integer(0, 9);
  }
}

void DrawRope(RandomSource& random, ModelConfig& config) {
  if (config.query_key_size < 2 || random.Chance(0.25)) return;
  RopeConfig rope;
  rope.size = 2 * random.Integer(1, config.query_key_size / 2);
  if (random.Chance(0.3)) rope.size = config.query_key_size / 2 * 2;
  rope.base = random.OneOf({10000.0, 100.0, 1e6});
  rope.layout = random.OneOf(
      {RopeConfig::Layout::kHalves, RopeConfig::Layout::kInterleaved});
  rope.position = random.OneOf(
      {RopeConfig::Position::kSequence, RopeConfig::Position::kChunk});
  config.rope = rope;
}

void DrawQuadratic(RandomSource& random, ModelConfig& config) {
  using Activation = QuadraticConfig::Activation;
  const auto c = static_cast<double>(config.chunk_size);
  const auto s = static_cast<double>(config.query_key_size);
  QuadraticConfig quadratic;
  quadratic.score_scale = random.OneOf({1 / c, 1 / std::sqrt(s), 1 / s, 1.0});
  quadratic.activation =
      random.OneOf({Activation::kReluSquared, Activation::kReluSquared,
                    Activation::kLaplace});
  if (quadratic.activation == Activation::kLaplace) {
    quadratic.laplace_mean = random.OneOf({0.7071067811865476, 0.5});
    quadratic.laplace_std = random.OneOf({0.28209479177387814, 0.88622693});
  }
  quadratic.weight_scale = random.OneOf({1.0, 1 / c});
  quadratic.row_mean = random.Chance(0.3);
  config.quadratic = quadratic;
}

void DrawLinear(RandomSource& random, ModelConfig& config) {
  LinearConfig linear;
  linear.mean_past = random.Chance(0.5);
  linear.scale = linear.mean_past ? random.OneOf({1.0, 0.5})
                                  : 1 / static_cast<double>(config.chunk_size);
  config.linear = linear;
}

void DrawBias(RandomSource& random, ModelConfig& config) {
  using Type = BiasConfig::Type;
  BiasConfig& bias = config.bias;
  bias.type = random.OneOf(
      {Type::kNone, Type::kT5, Type::kToeplitz, Type::kRopeToeplitz});
  if (bias.type == Type::kNone) return;
  bias.scale = random.OneOf(
      {1.0, std::sqrt(static_cast<double>(config.query_key_size)), -0.5});
  if (bias.type == Type::kT5) {
    bias.num_buckets = random.OneOf({2, 3, 8, 9, 32});
    bias.max_distance = bias.num_buckets / 2 + random.OneOf({1, 5, 20, 128});
  } else if (bias.type == Type::kToeplitz) {
    bias.length = config.chunk_size + random.OneOf({0, 0, 1, 16});
  } else {
    bias.base = random.OneOf({10000.0, 100.0});
    // As for rope: the pairs of an odd number of features are no pairs.
    config.query_key_size += config.query_key_size % 2;
  }
}

// Draws the numbers of the tensors, in the order in which they are written.
class TensorSource {
 public:
  TensorSource(const ModelConfig& config, const RandomModelOptions& options)
      : config_(config), options_(options), random_(options.seed) {}

  std::vector<TensorToWrite> All();

 private:
  // Normally distributed numbers.
  void Add(const std::string& name, std::vector<int64_t> shape, double mean,
           double deviation) {
    TensorToWrite tensor{name, options_.type, std::move(shape), {}};
    int64_t size = 1;
    for (const int64_t n : tensor.shape) size *= n;
    for (int64_t i = 0; i < size; ++i) {
      tensor.numbers.push_back(
          static_cast<float>(mean + deviation * random_.Normal()));
    }
    tensors_.push_back(std::move(tensor));
  }

  void AddNorm(const std::string& prefix, const NormConfig& norm, double size);
  void AddEmbedding();
  void AddLayer(int64_t l);
  void AddRelativeBias(const std::string& prefix);
  void AddHead();

  const ModelConfig& config_;
  const RandomModelOptions& options_;
  RandomSource random_;
  std::vector<TensorToWrite> tensors_;
};

void TensorSource::AddNorm(const std::string& prefix, const NormConfig& norm,
                           double size) {
  using Type = NormConfig::Type;
  if (norm.type == Type::kNone) return;
  const int64_t width = norm.type == Type::kScaleNorm ? 1 : config_.hidden_size;
  Add(prefix + "weight", {width}, size, 0.1 * size);
  if (norm.type == Type::kLayerNorm) {
    Add(prefix + "bias", {width}, 0, 0.1 * size);
  }
}

void TensorSource::AddEmbedding() {
  using Position = EmbeddingConfig::Position;
  const int64_t d = config_.hidden_size;
  Add("embedding.weight", {config_.vocab_size, d}, 0,
      1 / config_.embedding.scale);
  if (config_.embedding.position == Position::kSinusoidal) {
    Add("position.scale", {1}, 0.5, 0.1);
  } else if (config_.embedding.position == Position::kLearned) {
    Add("position.weight", {*config_.max_length, d}, 0, 0.5);
  }
}

void TensorSource::AddLayer(int64_t l) {
  const int64_t d = config_.hidden_size;
  const int64_t e = config_.expanded_size;
  const int64_t s = config_.query_key_size;
  const std::string prefix = absl::StrCat("layers.", l, ".");
  AddNorm(prefix + "norm.", config_.norm, 1);
  Add(prefix + "uvz.weight", {2 * e + s, d}, 0,
      1 / std::sqrt(static_cast<double>(d)));
  if (options_.uvz_bias) Add(prefix + "uvz.bias", {2 * e + s}, 0, 0.3);
  const std::vector<int64_t> heads = {config_.num_heads(), s};
  Add(prefix + "head_scale", heads, 1, 0.5);
  Add(prefix + "head_offset", heads, 0, 0.3);
  AddRelativeBias(prefix + "relative_bias.");
  Add(prefix + "output.weight", {d, e}, 0,
      1 / std::sqrt(static_cast<double>(e)));
  if (options_.output_bias) Add(prefix + "output.bias", {d}, 0, 0.05);
}

// Biases of about the size of the scores they are added to.
void TensorSource::AddRelativeBias(const std::string& prefix) {
  using Type = BiasConfig::Type;
  const BiasConfig& bias = config_.bias;
  if (bias.type == Type::kNone) return;
  const int64_t s = config_.query_key_size;
  const double size = config_.quadratic->score_scale *
                      std::sqrt(static_cast<double>(s)) * 0.3 /
                      std::abs(bias.scale);
  if (bias.type == Type::kRopeToeplitz) {
    const double share = std::sqrt(size / std::sqrt(static_cast<double>(s)));
    Add(prefix + "a", {s}, 0, share);
    Add(prefix + "b", {s}, 0, share);
  } else {
    const bool t5 = bias.type == Type::kT5;
    Add(prefix + "weight", {t5 ? bias.num_buckets : 2 * bias.length - 1}, 0,
        size);
  }
}

void TensorSource::AddHead() {
  const int64_t d = config_.hidden_size;
  const double spread = 2.5 / std::sqrt(static_cast<double>(d));
  const bool tied = config_.lm_head.tied;
  // The embedding's rows are 1 / scale long, feature by feature.
  AddNorm("final_norm.", config_.final_norm,
          tied ? spread * config_.embedding.scale : 1);
  if (!tied) Add("lm_head.weight", {config_.vocab_size, d}, 0, spread);
  if (options_.lm_head_bias) Add("lm_head.bias", {config_.vocab_size}, 0, 0.5);
}

std::vector<TensorToWrite> TensorSource::All() {
  AddEmbedding();
  for (int64_t l = 0; l < config_.num_layers; ++l) AddLayer(l);
  AddHead();
  return std::move(tensors_);
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

double RootMeanSquare(const std::vector<double>& numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number * number;
  return std::sqrt(sum / static_cast<double>(numbers.size()));
}

// By what the output of layer l is to be multiplied: so that what it adds to
// the residual stream is 0.7 on the average over a text of some chunks, and not
// more than 2 where it is largest. Measured on the files as they are.
absl::StatusOr<double> OutputGain(const ModelConfig& config, int64_t l,
                                  const std::string& directory) {
  const auto checkpoint = Checkpoint::Open(directory);
  if (!checkpoint.ok()) return checkpoint.status();
  const auto reference = Reference::Create(config, *checkpoint);
  if (!reference.ok()) return reference.status();
  RandomSource random(static_cast<uint64_t>(l));
  Reference::Sequence sequence = reference->Start();
  int64_t length = std::min<int64_t>(4 * config.chunk_size + 3, 300);
  length = std::min(length, config.max_length.value_or(length));
  std::vector<double> sizes;
  for (int64_t t = 0; t < length; ++t) {
    sequence.Step(
        static_cast<int32_t>(random.Integer(0, config.vocab_size - 1)));
    std::vector<double> added = sequence.residual_stream()[l + 1];
    for (size_t i = 0; i < added.size(); ++i) {
      added[i] -= sequence.residual_stream()[l][i];
    }
    sizes.push_back(RootMeanSquare(added));
  }
  const double largest = *std::max_element(sizes.begin(), sizes.end());
  if (largest == 0) return 1.0;
  return std::min(0.7 / RootMeanSquare(sizes), 2 / largest);
}

}  // namespace

ModelConfig RandomConfig(uint64_t seed) {
  RandomSource random(seed);
  ModelConfig config;
  DrawSizes(random, config);
  DrawEmbedding(random, config);
  config.norm = RandomNorm(random);
  // Without a norm a layer is a polynomial of degree 6 of what it is given.
  if (config.norm.type == NormConfig::Type::kNone) {
    config.num_layers = std::min<int64_t>(config.num_layers, 2);
  }
  config.token_shift = random.Chance(0.5);
  const int64_t branches = random.Integer(0, 5);  // 0, 1: one of them is off
  if (branches != 0) DrawQuadratic(random, config);
  if (branches != 1) DrawLinear(random, config);
  if (branches != 0) DrawBias(random, config);
  DrawRope(random, config);
  config.final_norm = RandomNorm(random);
  config.lm_head.tied = random.Chance(0.4);
  return config;
}

RandomModelOptions RandomOptions(uint64_t seed) {
  RandomSource random(~seed);
  RandomModelOptions options;
  options.seed = seed;
  options.type = random.OneOf(
      {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16});
  options.uvz_bias = random.Chance(0.6);
  options.output_bias = random.Chance(0.6);
  options.lm_head_bias = random.Chance(0.6);
  return options;
}

absl::Status WriteRandomModel(const ModelConfig& config,
                              const RandomModelOptions& options,
                              const std::string& directory) {
  std::vector<TensorToWrite> tensors = TensorSource(config, options).All();
  const std::string path = directory + "/model.safetensors";
  WriteFile(directory + "/config.json", ConfigJson(config));
  WriteFile(path, SafetensorsBytes(tensors));
  for (int64_t l = 0; l < config.num_layers; ++l) {
    const auto gain = OutputGain(config, l, directory);
    if (!gain.ok()) return gain.status();
    const std::string name = absl::StrCat("layers.", l, ".output.weight");
    for (TensorToWrite& tensor : tensors) {
      if (tensor.name != name) continue;
      for (float& number : tensor.numbers) {
        number = static_cast<float>(number * *gain);
      }
    }
    WriteFile(path, SafetensorsBytes(tensors));
  }
  return absl::OkStatus();
}

}  // namespace flash
