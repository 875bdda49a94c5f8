#include "server/model/config.h"

#include <numbers>

#include "absl/strings/str_cat.h"
#include "server/model/strict_json.h"

namespace flash {
namespace {

// Far above every model there is, and low enough that no product of sizes, nor
// the sum of such products over all layers, comes near the end of int64_t.
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxLayers = int64_t{1} << 12;
constexpr int64_t kMaxLength = int64_t{1} << 48;
constexpr int64_t kMaxElements = int64_t{1} << 36;  // of one matrix

void ReadSizes(ObjectReader& file, ModelConfig& config) {
  config.vocab_size = file.Integer("vocab_size", 1, kMaxSize);
  config.hidden_size = file.Integer("hidden_size", 1, kMaxSize);
  config.expanded_size = file.Integer("expanded_size", 1, kMaxSize);
  config.query_key_size = file.Integer("query_key_size", 1, kMaxSize);
  config.num_layers = file.Integer("num_layers", 1, kMaxLayers);
  config.chunk_size = file.Integer("chunk_size", 1, kMaxSize);
  config.trained_length = file.IntegerOrNull("trained_length", 1, kMaxLength);
  config.max_length = file.IntegerOrNull("max_length", 1, kMaxLength);
  const int64_t last_id = config.vocab_size - 1;
  config.bos_token_id = file.IntegerOrNull("bos_token_id", 0, last_id);
  config.eos_token_ids = file.Integers("eos_token_ids", 0, last_id);
}

TokenizerConfig ReadTokenizer(ObjectReader reader) {
  using Type = TokenizerConfig::Type;
  TokenizerConfig tokenizer;
  tokenizer.type =
      reader.OneOf<Type>("type", {{"sentencepiece", Type::kSentencePiece},
                                  {"bytes", Type::kBytes},
                                  {"none", Type::kNone}});
  if (tokenizer.type == Type::kSentencePiece) {
    tokenizer.file = reader.FileName("file");
  }
  reader.RefuseOtherKeys();
  return tokenizer;
}

EmbeddingConfig ReadEmbedding(ObjectReader reader) {
  using Position = EmbeddingConfig::Position;
  EmbeddingConfig embedding;
  embedding.scale = reader.Number("scale");
  embedding.position =
      reader.OneOf<Position>("position", {{"none", Position::kNone},
                                          {"sinusoidal", Position::kSinusoidal},
                                          {"learned", Position::kLearned}});
  if (embedding.position == Position::kSinusoidal) {
    embedding.position_base = reader.PositiveNumber("position_base");
  }
  reader.RefuseOtherKeys();
  return embedding;
}

NormConfig ReadNorm(ObjectReader reader) {
  using Type = NormConfig::Type;
  using EpsMode = NormConfig::EpsMode;
  NormConfig norm;
  norm.type = reader.OneOf<Type>("type", {{"scale_norm", Type::kScaleNorm},
                                          {"layer_norm", Type::kLayerNorm},
                                          {"rms_norm", Type::kRmsNorm},
                                          {"none", Type::kNone}});
  if (norm.type != Type::kNone) norm.eps = reader.PositiveNumber("eps");
  if (norm.type == Type::kScaleNorm || norm.type == Type::kRmsNorm) {
    norm.eps_mode = reader.OneOf<EpsMode>(
        "eps_mode", {{"add", EpsMode::kAdd}, {"clamp", EpsMode::kClamp}});
  }
  reader.RefuseOtherKeys();
  return norm;
}

RopeConfig ReadRope(ObjectReader reader, int64_t query_key_size) {
  using Layout = RopeConfig::Layout;
  using Position = RopeConfig::Position;
  RopeConfig rope;
  rope.size = reader.Integer("size", 2, query_key_size);
  if (rope.size % 2 != 0) {
    reader.Refuse("size",
                  absl::StrCat("an even integer from 2 to ", query_key_size));
  }
  rope.base = reader.PositiveNumber("base");
  rope.layout = reader.OneOf<Layout>(
      "layout",
      {{"halves", Layout::kHalves}, {"interleaved", Layout::kInterleaved}});
  rope.position = reader.OneOf<Position>(
      "position",
      {{"sequence", Position::kSequence}, {"chunk", Position::kChunk}});
  reader.RefuseOtherKeys();
  return rope;
}

void ReadT5(ObjectReader& reader, BiasConfig& bias) {
  bias.num_buckets = reader.Integer("num_buckets", 2, kMaxSize);
  // Beyond the exact buckets, or the logarithm that spreads the others over
  // the distances would be that of a number below 1.
  bias.max_distance =
      reader.Integer("max_distance", bias.num_buckets / 2 + 1, kMaxLength);
}

BiasConfig ReadBias(ObjectReader reader, const ModelConfig& config) {
  using Type = BiasConfig::Type;
  BiasConfig bias;
  bias.type =
      reader.OneOf<Type>("type", {{"none", Type::kNone},
                                  {"t5", Type::kT5},
                                  {"toeplitz", Type::kToeplitz},
                                  {"rope_toeplitz", Type::kRopeToeplitz}});
  if (bias.type != Type::kNone) bias.scale = reader.Number("scale");
  if (bias.type == Type::kT5) ReadT5(reader, bias);
  if (bias.type == Type::kToeplitz) {
    bias.length = reader.Integer("length", config.chunk_size, kMaxSize);
  }
  if (bias.type == Type::kRopeToeplitz) {
    bias.base = reader.Has("base") ? reader.PositiveNumber("base") : 10000;
  }
  reader.RefuseOtherKeys();
  return bias;
}

QuadraticConfig ReadQuadratic(ObjectReader reader) {
  using Activation = QuadraticConfig::Activation;
  QuadraticConfig quadratic;
  quadratic.score_scale = reader.Number("score_scale");
  quadratic.activation = reader.OneOf<Activation>(
      "activation", {{"relu_squared", Activation::kReluSquared},
                     {"laplace", Activation::kLaplace}});
  if (quadratic.activation == Activation::kLaplace) {
    quadratic.laplace_mean = reader.Has("laplace_mean")
                                 ? reader.Number("laplace_mean")
                                 : std::numbers::sqrt2 / 2;
    quadratic.laplace_std = reader.Has("laplace_std")
                                ? reader.PositiveNumber("laplace_std")
                                : std::numbers::inv_sqrtpi / 2;
  }
  quadratic.weight_scale = reader.Number("weight_scale");
  quadratic.row_mean = reader.Bool("row_mean");
  reader.RefuseOtherKeys();
  return quadratic;
}

LinearConfig ReadLinear(ObjectReader reader) {
  LinearConfig linear;
  linear.scale = reader.Number("scale");
  linear.mean_past = reader.Bool("mean_past");
  reader.RefuseOtherKeys();
  return linear;
}

LmHeadConfig ReadLmHead(ObjectReader reader) {
  LmHeadConfig lm_head;
  lm_head.tied = reader.Bool("tied");
  reader.RefuseOtherKeys();
  return lm_head;
}

void ReadAttention(ObjectReader& file, ModelConfig& config) {
  if (auto rope = file.ObjectOrNull("rope")) {
    config.rope = ReadRope(*std::move(rope), config.query_key_size);
  }
  config.bias = ReadBias(file.Object("bias"), config);
  if (auto quadratic = file.ObjectOrNull("quadratic")) {
    config.quadratic = ReadQuadratic(*std::move(quadratic));
  }
  if (auto linear = file.ObjectOrNull("linear")) {
    config.linear = ReadLinear(*std::move(linear));
  }
}

ModelConfig ReadFile(ObjectReader& file) {
  ModelConfig config;
  file.OneOf<int>("format", {{"flash-lm/1", 1}});
  config.architecture = file.OneOf<ModelConfig::Architecture>(
      "architecture", {{"flash", ModelConfig::Architecture::kFlash}});
  ReadSizes(file, config);
  config.tokenizer = ReadTokenizer(file.Object("tokenizer"));
  config.embedding = ReadEmbedding(file.Object("embedding"));
  config.norm = ReadNorm(file.Object("norm"));
  config.token_shift = file.Bool("token_shift");
  ReadAttention(file, config);
  config.final_norm = ReadNorm(file.Object("final_norm"));
  config.lm_head = ReadLmHead(file.Object("lm_head"));
  file.RefuseOtherKeys();
  return config;
}

// What one key says about another.
void CheckAgreement(const ModelConfig& config, FirstError& errors) {
  using Position = EmbeddingConfig::Position;
  const Position position = config.embedding.position;
  if (position == Position::kSinusoidal && config.hidden_size % 2 != 0) {
    errors.Add(
        "\"hidden_size\" is odd; accepted with \"embedding.position\" "
        "\"sinusoidal\" is an even number");
  }
  if (position == Position::kLearned && !config.max_length.has_value()) {
    errors.Add(
        "\"max_length\" is null; accepted with \"embedding.position\" "
        "\"learned\" is an integer");
  }
  if (config.tokenizer.type == TokenizerConfig::Type::kBytes &&
      config.vocab_size < 256) {
    errors.Add(
        "\"vocab_size\" is below 256; accepted with \"tokenizer.type\" "
        "\"bytes\" is 256 or more");
  }
  if (!config.quadratic.has_value() && !config.linear.has_value()) {
    errors.Add(
        "\"quadratic\" and \"linear\" are both null; accepted is null for at "
        "most one of them");
  }
  if (!config.quadratic.has_value() &&
      config.bias.type != BiasConfig::Type::kNone) {
    errors.Add(
        "\"bias.type\" is not \"none\"; accepted with \"quadratic\" null is "
        "\"none\"");
  }
  if (config.bias.type == BiasConfig::Type::kRopeToeplitz &&
      config.query_key_size % 2 != 0) {
    errors.Add(
        "\"query_key_size\" is odd; accepted with \"bias.type\" "
        "\"rope_toeplitz\" is an even number");
  }
}

// Each factor is at most 2^48 and each product is checked by division, so that
// nothing here can overflow either.
void CheckProduct(const std::string& what, int64_t a, int64_t b,
                  FirstError& errors) {
  if (a <= kMaxElements / b) return;
  errors.Add(absl::StrCat(what, " is too large; accepted is a product up to ",
                          kMaxElements));
}

void CheckProducts(const ModelConfig& config, FirstError& errors) {
  const int64_t d = config.hidden_size;
  const int64_t e = config.expanded_size;
  const int64_t s = config.query_key_size;
  CheckProduct("\"vocab_size\" x \"hidden_size\"", config.vocab_size, d,
               errors);
  CheckProduct("(2 x \"expanded_size\" + \"query_key_size\") x \"hidden_size\"",
               2 * e + s, d, errors);
  CheckProduct("\"query_key_size\" x \"expanded_size\"", s, e, errors);
  CheckProduct("\"chunk_size\" x (\"expanded_size\" + 2 x \"query_key_size\")",
               config.chunk_size, e + 2 * s, errors);
  if (config.embedding.position == EmbeddingConfig::Position::kLearned) {
    CheckProduct("\"max_length\" x \"hidden_size\"", *config.max_length, d,
                 errors);
  }
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json,
                                             const std::string& file_name) {
  const absl::StatusOr<nlohmann::json> value = ParseStrictJson(json, file_name);
  if (!value.ok()) return value.status();
  FirstError errors(file_name);
  ObjectReader file(*value, "", &errors);
  const ModelConfig config = ReadFile(file);
  if (!errors.status().ok()) return errors.status();
  CheckAgreement(config, errors);
  if (errors.status().ok()) CheckProducts(config, errors);
  if (!errors.status().ok()) return errors.status();
  return config;
}

}  // namespace flash
