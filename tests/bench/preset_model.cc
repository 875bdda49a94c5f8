#include "tests/bench/preset_model.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/reference/model_writer.h"

namespace flash {
namespace {

uint16_t ToBFloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x8000) >> 16);
}

// The paper's settings, but for the sizes.
ModelConfig PaperConfig() {
  ModelConfig config;
  config.norm = {.type = NormConfig::Type::kScaleNorm,
                 .eps = 1e-5,
                 .eps_mode = NormConfig::EpsMode::kAdd};
  config.final_norm = {.type = NormConfig::Type::kLayerNorm, .eps = 1e-5};
  config.query_key_size = 128;
  config.rope = RopeConfig{.size = 128, .base = 10000};
  config.quadratic = QuadraticConfig{.weight_scale = 1};
  config.linear = LinearConfig{.scale = 1, .mean_past = true};
  config.lm_head.tied = true;
  return config;
}

void SetSizes(ModelConfig& config, int64_t layers, int64_t hidden,
              int64_t chunk, int64_t vocab) {
  config.num_layers = layers;
  config.hidden_size = hidden;
  config.expanded_size = 2 * hidden;
  config.chunk_size = chunk;
  config.vocab_size = vocab;
  config.quadratic->score_scale = 1.0 / static_cast<double>(chunk);
  config.bias = {
      .type = BiasConfig::Type::kToeplitz, .scale = 1, .length = chunk};
}

}  // namespace

std::string PresetModel::KnownNames() { return "112m, 500m, tiny"; }

absl::StatusOr<std::unique_ptr<PresetModel>> PresetModel::Make(
    const std::string& name) {
  std::unique_ptr<PresetModel> model(new PresetModel());
  model->config_ = PaperConfig();
  if (name == "112m") {
    SetSizes(model->config_, 24, 768, 256, 32000);
  } else if (name == "500m") {
    SetSizes(model->config_, 72, 1024, 512, 32000);
  } else if (name == "tiny") {
    SetSizes(model->config_, 2, 64, 32, 256);
  } else {
    return absl::NotFoundError(
        absl::StrCat("no preset \"", name, "\"; known: ", KnownNames()));
  }
  model->MakeWeights();
  return model;
}

TensorView PresetModel::Take(std::vector<int64_t> shape) {
  TensorView view = {.type = DataType::kBFloat16, .shape = std::move(shape)};
  memory_.push_back(
      std::make_unique<std::vector<uint16_t>>(view.num_elements()));
  view.data = reinterpret_cast<const std::byte*>(memory_.back()->data());
  return view;
}

TensorView PresetModel::Random(std::vector<int64_t> shape, float size) {
  TensorView view = Take(std::move(shape));
  for (uint16_t& number : *memory_.back()) {
    // xorshift64: fast, and the same on every machine.
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    const float unit = static_cast<float>(random_ >> 40) * 0x1p-23f - 1;
    number = ToBFloat16(unit * size);
  }
  return view;
}

TensorView PresetModel::Constant(std::vector<int64_t> shape, float value) {
  TensorView view = Take(std::move(shape));
  for (uint16_t& number : *memory_.back()) number = ToBFloat16(value);
  return view;
}

void PresetModel::MakeWeights() {
  const int64_t d = config_.hidden_size;
  const int64_t e = config_.expanded_size;
  const int64_t s = config_.query_key_size;
  const auto fan_in = [](int64_t n) {
    return std::sqrt(3.0f / static_cast<float>(n));
  };
  weights_.embedding = Random({config_.vocab_size, d}, 0.5f);
  for (int64_t l = 0; l < config_.num_layers; ++l) {
    LayerTensors layer;
    layer.norm_weight = Constant({1}, 1);
    layer.uvz_weight = Random({2 * e + s, d}, fan_in(d));
    layer.head_scale = Random({4, s}, 1);
    layer.head_offset = Random({4, s}, 0.5f);
    layer.relative_bias = Random({2 * config_.chunk_size - 1}, 0.2f);
    layer.output_weight = Random({d, e}, fan_in(e));
    weights_.layers.push_back(std::move(layer));
  }
  weights_.final_norm_weight = Constant({d}, 1);
  weights_.final_norm_bias = Constant({d}, 0);
}

absl::Status PresetModel::Write(const std::string& directory) const {
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const std::string& name, const TensorView& view) {
    tensors.push_back({name, view.type, view.shape, ToFloat32(view)});
  };
  add("embedding.weight", weights_.embedding);
  for (size_t l = 0; l < weights_.layers.size(); ++l) {
    const LayerTensors& layer = weights_.layers[l];
    const std::string prefix = absl::StrCat("layers.", l, ".");
    add(prefix + "norm.weight", *layer.norm_weight);
    add(prefix + "uvz.weight", layer.uvz_weight);
    add(prefix + "head_scale", layer.head_scale);
    add(prefix + "head_offset", layer.head_offset);
    add(prefix + "relative_bias.weight", *layer.relative_bias);
    add(prefix + "output.weight", layer.output_weight);
  }
  add("final_norm.weight", *weights_.final_norm_weight);
  add("final_norm.bias", *weights_.final_norm_bias);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  std::ofstream config(directory + "/config.json");
  config << ConfigJson(config_);
  std::ofstream file(directory + "/model.safetensors", std::ios::binary);
  file << SafetensorsBytes(tensors);
  if (config.flush() && file.flush()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(directory, " cannot be written to"));
}

}  // namespace flash
