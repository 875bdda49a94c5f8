// From the checkpoint's tensors to a Network: packs the dense weights, pads the
// small ones, and says which tensor is at fault where one is.

#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/model/network.h"

namespace flash {
namespace {

Norm::Type TypeOf(NormConfig::Type type) {
  switch (type) {
    case NormConfig::Type::kScaleNorm:
      return Norm::Type::kScale;
    case NormConfig::Type::kLayerNorm:
      return Norm::Type::kLayer;
    case NormConfig::Type::kRmsNorm:
      return Norm::Type::kRms;
    case NormConfig::Type::kNone:
      break;
  }
  return Norm::Type::kNone;
}

// base^(-2k / size) for k < size / 2.
std::vector<double> Frequencies(double base, int64_t size) {
  std::vector<double> frequencies;
  for (int64_t k = 0; k < size / 2; ++k) {
    frequencies.push_back(std::pow(
        base, -2.0 * static_cast<double>(k) / static_cast<double>(size)));
  }
  return frequencies;
}

absl::Status Named(const std::string& name, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(name, ": ", std::string(status.message())));
}

}  // namespace

// Fills one Network. The first failure is kept and makes the rest do nothing,
// so that the steps read in order.
class NetworkLoader {
 public:
  NetworkLoader(Backend& backend, const ModelConfig& config,
                const CheckpointWeights& weights,
                const Network::Options& options)
      : backend_(backend),
        config_(config),
        weights_(weights),
        options_(options),
        network_(new Network(backend, config)) {}

  absl::StatusOr<std::unique_ptr<Network>> Load() {
    LoadEmbedding();
    LoadRotary();
    for (int64_t layer = 0; layer < config_.num_layers && status_.ok();
         ++layer) {
      LoadLayer(layer);
    }
    network_->final_norm_ =
        LoadNorm("final_norm", config_.final_norm, weights_.final_norm_weight,
                 weights_.final_norm_bias);
    const TensorView& head =
        config_.lm_head.tied ? weights_.embedding : *weights_.lm_head_weight;
    network_->lm_head_ = LoadDense(
        config_.lm_head.tied ? "embedding.weight" : "lm_head.weight", head,
        {config_.vocab_size}, "lm_head.bias", weights_.lm_head_bias);
    ReserveMemory();
    if (!status_.ok()) return status_;
    return std::move(network_);
  }

 private:
  void Fail(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  // Bytes on the device; null after a failure.
  std::byte* Place(const void* bytes, size_t size) {
    if (!status_.ok()) return nullptr;
    absl::StatusOr<std::unique_ptr<Buffer>> buffer = backend_.Allocate(size);
    if (!buffer.ok()) {
      Fail(buffer.status());
      return nullptr;
    }
    backend_.Upload((*buffer)->data(), bytes, size);
    network_->memory_.push_back(*std::move(buffer));
    return network_->memory_.back()->data();
  }

  const float* PlaceFloats(const std::vector<float>& values) {
    return reinterpret_cast<const float*>(
        Place(values.data(), values.size() * sizeof(float)));
  }

  std::vector<float> Floats(const std::string& name, const TensorView& tensor) {
    Fail(CheckFinite(name, tensor));
    return ToFloat32(tensor);
  }

  // [rows, cols] with Padded(cols) columns.
  const float* PlacePadded(const std::vector<float>& values, int64_t cols) {
    const int64_t rows = static_cast<int64_t>(values.size()) / cols;
    std::vector<float> padded(rows * Padded(cols), 0);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(values.begin() + row * cols, cols,
                  padded.begin() + row * Padded(cols));
    }
    return PlaceFloats(padded);
  }

  // A table that rows are looked up in: as it is, but for float16.
  const std::byte* PlaceTable(const std::string& name, const TensorView& table,
                              DataType& type) {
    Fail(CheckFinite(name, table));
    type = table.type;
    if (type != DataType::kFloat16) {
      return Place(table.data, table.num_bytes());
    }
    type = DataType::kFloat32;
    return reinterpret_cast<const std::byte*>(PlaceFloats(ToFloat32(table)));
  }

  void LoadEmbedding() {
    Embedding& embedding = network_->embedding_;
    embedding.table =
        PlaceTable("embedding.weight", weights_.embedding, embedding.type);
    embedding.scale = static_cast<float>(config_.embedding.scale);
    switch (config_.embedding.position) {
      case EmbeddingConfig::Position::kNone:
        break;
      case EmbeddingConfig::Position::kSinusoidal:
        embedding.position = Embedding::Position::kSinusoidal;
        network_->sinusoid_frequencies_ =
            Frequencies(config_.embedding.position_base, config_.hidden_size);
        embedding.frequencies = network_->sinusoid_frequencies_.data();
        embedding.position_scale =
            Floats("position.scale", *weights_.position_scale)[0];
        break;
      case EmbeddingConfig::Position::kLearned:
        embedding.position = Embedding::Position::kLearned;
        embedding.position_table =
            PlaceTable("position.weight", *weights_.position_weight,
                       embedding.position_type);
        break;
    }
  }

  void LoadRotary() {
    if (!config_.rope.has_value()) return;
    Rotary& rotary = network_->rotary_;
    rotary.size = config_.rope->size;
    rotary.layout = config_.rope->layout == RopeConfig::Layout::kHalves
                        ? Rotary::Layout::kHalves
                        : Rotary::Layout::kInterleaved;
    rotary.position = config_.rope->position == RopeConfig::Position::kSequence
                          ? Rotary::Position::kSequence
                          : Rotary::Position::kChunk;
    network_->rotary_frequencies_ =
        Frequencies(config_.rope->base, config_.rope->size);
    rotary.frequencies = network_->rotary_frequencies_.data();
  }

  Norm LoadNorm(const std::string& name, const NormConfig& config,
                const std::optional<TensorView>& weight,
                const std::optional<TensorView>& bias) {
    Norm norm;
    norm.type = TypeOf(config.type);
    norm.eps = static_cast<float>(config.eps);
    norm.eps_mode = config.eps_mode == NormConfig::EpsMode::kAdd
                        ? Norm::EpsMode::kAdd
                        : Norm::EpsMode::kClamp;
    if (weight.has_value()) {
      const std::vector<float> values = Floats(name + ".weight", *weight);
      norm.weight = PlacePadded(values, static_cast<int64_t>(values.size()));
    }
    if (bias.has_value()) {
      norm.bias =
          PlacePadded(Floats(name + ".bias", *bias), config_.hidden_size);
    }
    return norm;
  }

  // `segments`: the rows of each part that begins at a padded column.
  std::unique_ptr<Dense> LoadDense(const std::string& name,
                                   const TensorView& weight,
                                   const std::vector<int64_t>& segments,
                                   const std::string& bias_name,
                                   const std::optional<TensorView>& bias) {
    DenseSource source;
    source.type = weight.type;
    source.stored = options_.stored;
    source.cols = weight.shape[1];
    const std::byte* data = weight.data;
    for (const int64_t rows : segments) {
      source.segments.push_back({data, rows});
      data += rows * source.cols * SizeOf(weight.type);
    }
    if (bias.has_value()) source.bias = Floats(bias_name, *bias);
    max_inputs_ = std::max(max_inputs_, source.cols);
    if (!status_.ok()) return nullptr;
    absl::StatusOr<std::unique_ptr<Dense>> dense = backend_.MakeDense(source);
    if (dense.ok()) return *std::move(dense);
    Fail(Named(name, dense.status()));
    return nullptr;
  }

  void LoadLayer(int64_t index) {
    const LayerTensors& tensors = weights_.layers[index];
    const std::string name = absl::StrCat("layers.", index, ".");
    Network::Layer layer;
    layer.norm = LoadNorm(name + "norm", config_.norm, tensors.norm_weight,
                          tensors.norm_bias);
    const int64_t e = config_.expanded_size;
    layer.uvz = LoadDense(name + "uvz.weight", tensors.uvz_weight,
                          {e, e, config_.query_key_size}, name + "uvz.bias",
                          tensors.uvz_bias);
    layer.attention = LoadAttention(index, name);
    layer.output = LoadDense(name + "output.weight", tensors.output_weight,
                             {config_.hidden_size}, name + "output.bias",
                             tensors.output_bias);
    network_->layers_.push_back(std::move(layer));
  }

  Attention LoadAttention(int64_t index, const std::string& name) {
    const LayerTensors& tensors = weights_.layers[index];
    Attention attention;
    attention.query_key_size = config_.query_key_size;
    attention.expanded_size = config_.expanded_size;
    attention.chunk_size = config_.chunk_size;
    attention.has_linear = config_.linear.has_value();
    attention.has_quadratic = config_.quadratic.has_value();
    attention.rotary_layout = network_->rotary_.layout;
    attention.rotary_size = network_->rotary_.size;
    if (config_.quadratic.has_value()) SetQuadratic(attention);
    attention.head_scale =
        PlacePadded(Floats(name + "head_scale", tensors.head_scale),
                    config_.query_key_size);
    attention.head_offset =
        PlacePadded(Floats(name + "head_offset", tensors.head_offset),
                    config_.query_key_size);
    absl::StatusOr<std::vector<float>> bias =
        BiasVector(config_, weights_, index);
    if (!bias.ok()) {
      Fail(bias.status());
      return attention;
    }
    bias->resize(config_.chunk_size, 0);
    attention.bias = PlacePadded(*bias, config_.chunk_size);
    return attention;
  }

  void SetQuadratic(Attention& attention) const {
    const QuadraticConfig& quadratic = *config_.quadratic;
    attention.score_scale = static_cast<float>(quadratic.score_scale);
    attention.phi =
        quadratic.activation == QuadraticConfig::Activation::kReluSquared
            ? Phi::kReluSquared
            : Phi::kLaplace;
    attention.laplace_mean = static_cast<float>(quadratic.laplace_mean);
    attention.laplace_std = static_cast<float>(quadratic.laplace_std);
  }

  void ReserveMemory() {
    if (!status_.ok()) return;
    Fail(backend_.Reserve({.max_rows = options_.max_rows,
                           .max_inputs = max_inputs_,
                           .query_key_size = config_.query_key_size,
                           .chunk_size = config_.chunk_size,
                           .max_host_numbers = options_.max_logits_rows *
                                               Padded(config_.vocab_size)}));
    if (!status_.ok()) return;
    std::unique_ptr<Buffer> memory;
    absl::StatusOr<Activations> activations = Activations::Allocate(
        backend_, config_, options_.max_rows, options_.max_logits_rows, memory);
    if (!activations.ok()) {
      Fail(activations.status());
      return;
    }
    network_->memory_.push_back(std::move(memory));
    network_->activations_ = *activations;
  }

  Backend& backend_;
  const ModelConfig& config_;
  const CheckpointWeights& weights_;
  const Network::Options options_;
  std::unique_ptr<Network> network_;
  absl::Status status_;
  int64_t max_inputs_ = 0;
};

absl::StatusOr<std::unique_ptr<Network>> Network::Create(
    Backend& backend, const ModelConfig& config,
    const CheckpointWeights& weights, const Options& options) {
  return NetworkLoader(backend, config, weights, options).Load();
}

}  // namespace flash
