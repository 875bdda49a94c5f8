#include "tests/reference/model_writer.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "nlohmann/json.hpp"

namespace flash {
namespace {

using Json = nlohmann::ordered_json;

Json NullOr(const std::optional<int64_t>& number) {
  return number.has_value() ? Json(*number) : Json(nullptr);
}

Json Tokenizer(const TokenizerConfig& tokenizer) {
  using Type = TokenizerConfig::Type;
  if (tokenizer.type == Type::kSentencePiece) {
    return {{"type", "sentencepiece"}, {"file", tokenizer.file}};
  }
  return {{"type", tokenizer.type == Type::kBytes ? "bytes" : "none"}};
}

Json Embedding(const EmbeddingConfig& embedding) {
  using Position = EmbeddingConfig::Position;
  Json json = {{"scale", embedding.scale}};
  switch (embedding.position) {
    case Position::kNone:
      json["position"] = "none";
      break;
    case Position::kSinusoidal:
      json["position"] = "sinusoidal";
      json["position_base"] = embedding.position_base;
      break;
    case Position::kLearned:
      json["position"] = "learned";
      break;
  }
  return json;
}

Json Norm(const NormConfig& norm) {
  using Type = NormConfig::Type;
  switch (norm.type) {
    case Type::kNone:
      return {{"type", "none"}};
    case Type::kLayerNorm:
      return {{"type", "layer_norm"}, {"eps", norm.eps}};
    case Type::kScaleNorm:
    case Type::kRmsNorm:
      break;
  }
  const bool add = norm.eps_mode == NormConfig::EpsMode::kAdd;
  return {{"type", norm.type == Type::kScaleNorm ? "scale_norm" : "rms_norm"},
          {"eps", norm.eps},
          {"eps_mode", add ? "add" : "clamp"}};
}

Json Rope(const std::optional<RopeConfig>& rope) {
  if (!rope.has_value()) return nullptr;
  const bool halves = rope->layout == RopeConfig::Layout::kHalves;
  const bool in_chunk = rope->position == RopeConfig::Position::kChunk;
  return {{"size", rope->size},
          {"base", rope->base},
          {"layout", halves ? "halves" : "interleaved"},
          {"position", in_chunk ? "chunk" : "sequence"}};
}

Json Bias(const BiasConfig& bias) {
  switch (bias.type) {
    case BiasConfig::Type::kNone:
      break;
    case BiasConfig::Type::kT5:
      return {{"type", "t5"},
              {"scale", bias.scale},
              {"num_buckets", bias.num_buckets},
              {"max_distance", bias.max_distance}};
    case BiasConfig::Type::kToeplitz:
      return {
          {"type", "toeplitz"}, {"scale", bias.scale}, {"length", bias.length}};
    case BiasConfig::Type::kRopeToeplitz:
      return {{"type", "rope_toeplitz"},
              {"scale", bias.scale},
              {"base", bias.base}};
  }
  return {{"type", "none"}};
}

Json Quadratic(const std::optional<QuadraticConfig>& quadratic) {
  if (!quadratic.has_value()) return nullptr;
  Json json = {{"score_scale", quadratic->score_scale},
               {"activation", "relu_squared"},
               {"weight_scale", quadratic->weight_scale},
               {"row_mean", quadratic->row_mean}};
  if (quadratic->activation == QuadraticConfig::Activation::kLaplace) {
    json["activation"] = "laplace";
    json["laplace_mean"] = quadratic->laplace_mean;
    json["laplace_std"] = quadratic->laplace_std;
  }
  return json;
}

Json Linear(const std::optional<LinearConfig>& linear) {
  if (!linear.has_value()) return nullptr;
  return {{"scale", linear->scale}, {"mean_past", linear->mean_past}};
}

uint16_t ToBFloat16(float number) {
  const auto bits = std::bit_cast<uint32_t>(number);
  // Half of the last place, less one unless the last place is odd.
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// For numbers below 65520, the first that would be rounded to infinity.
uint16_t ToFloat16(float number) {
  const auto sign = static_cast<uint16_t>(std::signbit(number) ? 0x8000 : 0);
  const float magnitude = std::abs(number);
  if (magnitude < 0x1p-14f) {  // subnormal: so many times 2^-24
    return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  }
  uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  bits += 0xfff + ((bits >> 13) & 1);
  return sign | static_cast<uint16_t>((bits >> 13) - ((127 - 15) << 10));
}

std::string DataOf(const TensorToWrite& tensor) {
  std::string bytes;
  for (const float number : tensor.numbers) {
    const uint32_t bits = std::bit_cast<uint32_t>(number);
    const uint16_t narrow = tensor.type == DataType::kBFloat16
                                ? ToBFloat16(number)
                                : ToFloat16(number);
    const void* from = tensor.type == DataType::kFloat32
                           ? static_cast<const void*>(&bits)
                           : static_cast<const void*>(&narrow);
    bytes.append(static_cast<const char*>(from), SizeOf(tensor.type));
  }
  return bytes;
}

const char* NameOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "F32";
    case DataType::kFloat16:
      return "F16";
    case DataType::kBFloat16:
      return "BF16";
    case DataType::kInt8:  // no checkpoint's
      break;
  }
  return "";
}

}  // namespace

std::string ConfigJson(const ModelConfig& config) {
  const Json json = {
      {"format", "flash-lm/1"},
      {"architecture", "flash"},
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.hidden_size},
      {"expanded_size", config.expanded_size},
      {"query_key_size", config.query_key_size},
      {"num_layers", config.num_layers},
      {"chunk_size", config.chunk_size},
      {"trained_length", NullOr(config.trained_length)},
      {"max_length", NullOr(config.max_length)},
      {"bos_token_id", NullOr(config.bos_token_id)},
      {"eos_token_ids", config.eos_token_ids},
      {"tokenizer", Tokenizer(config.tokenizer)},
      {"embedding", Embedding(config.embedding)},
      {"norm", Norm(config.norm)},
      {"token_shift", config.token_shift},
      {"rope", Rope(config.rope)},
      {"bias", Bias(config.bias)},
      {"quadratic", Quadratic(config.quadratic)},
      {"linear", Linear(config.linear)},
      {"final_norm", Norm(config.final_norm)},
      {"lm_head", {{"tied", config.lm_head.tied}}},
  };
  return json.dump(1);
}

std::string SafetensorsBytes(const std::vector<TensorToWrite>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const TensorToWrite& tensor : tensors) {
    const size_t begin = data.size();
    data += DataOf(tensor);
    header[tensor.name] = {{"dtype", NameOf(tensor.type)},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, data.size()}}};
  }
  return SafetensorsBytes(header.dump(), data);
}

std::string SafetensorsBytes(const std::string& header,
                             const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

}  // namespace flash
