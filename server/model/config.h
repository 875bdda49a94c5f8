// What a model's config.json says, checked: the settings of the format
// "flash-lm/1". Fields have the names of the format's keys.

#ifndef SERVER_MODEL_CONFIG_H_
#define SERVER_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace flash {

struct TokenizerConfig {
  enum class Type { kSentencePiece, kBytes, kNone };
  Type type = Type::kNone;
  std::string file;  // a plain name in the model directory; kSentencePiece only
};

struct EmbeddingConfig {
  enum class Position { kNone, kSinusoidal, kLearned };
  double scale = 1;
  Position position = Position::kNone;
  double position_base = 0;  // kSinusoidal only
};

struct NormConfig {
  enum class Type { kScaleNorm, kLayerNorm, kRmsNorm, kNone };
  enum class EpsMode { kAdd, kClamp };
  Type type = Type::kNone;
  double eps = 0;                    // not with kNone
  EpsMode eps_mode = EpsMode::kAdd;  // kScaleNorm and kRmsNorm only
};

struct RopeConfig {
  enum class Layout { kHalves, kInterleaved };
  enum class Position { kSequence, kChunk };
  int64_t size = 0;  // even, <= query_key_size
  double base = 0;
  Layout layout = Layout::kHalves;
  Position position = Position::kSequence;
};

struct BiasConfig {
  enum class Type { kNone, kT5, kToeplitz, kRopeToeplitz };
  Type type = Type::kNone;
  double scale = 0;          // not with kNone
  int64_t num_buckets = 0;   // kT5 only
  int64_t max_distance = 0;  // kT5 only
  int64_t length = 0;        // kToeplitz only; >= chunk_size
  double base = 0;           // kRopeToeplitz only
};

struct QuadraticConfig {
  enum class Activation { kReluSquared, kLaplace };
  double score_scale = 0;
  Activation activation = Activation::kReluSquared;
  double laplace_mean = 0;  // kLaplace only
  double laplace_std = 0;   // kLaplace only; > 0
  double weight_scale = 0;
  bool row_mean = false;
};

struct LinearConfig {
  double scale = 0;
  bool mean_past = false;
};

struct LmHeadConfig {
  bool tied = false;
};

// Sizes are positive and so bounded that the number of elements of any tensor,
// and the sum of these over all layers, is far inside int64_t.
struct ModelConfig {
  enum class Architecture { kFlash };
  Architecture architecture = Architecture::kFlash;
  int64_t vocab_size = 0;      // V
  int64_t hidden_size = 0;     // d
  int64_t expanded_size = 0;   // e
  int64_t query_key_size = 0;  // s
  int64_t num_layers = 0;      // L
  int64_t chunk_size = 0;      // C
  std::optional<int64_t> trained_length;
  std::optional<int64_t> max_length;  // set where the position is kLearned
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  TokenizerConfig tokenizer;
  EmbeddingConfig embedding;
  NormConfig norm;
  bool token_shift = false;
  std::optional<RopeConfig> rope;
  BiasConfig bias;                           // kNone without `quadratic`
  std::optional<QuadraticConfig> quadratic;  // at least one of these two
  std::optional<LinearConfig> linear;
  NormConfig final_norm;
  LmHeadConfig lm_head;

  // The heads in the order of head_scale's rows: quad_q and quad_k where there
  // is `quadratic`, then lin_q and lin_k where there is `linear`.
  int64_t num_heads() const {
    return (quadratic.has_value() ? 2 : 0) + (linear.has_value() ? 2 : 0);
  }
};

// Returns the settings in `json`, the text of config.json.
//
// Returns INVALID_ARGUMENT with one sentence that names `file_name`, the key
// (as "rope.size") and what is accepted, if a key is missing, unknown or there
// twice, a value is none of the accepted ones, or settings contradict another.
// Pure; any thread.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json,
                                             const std::string& file_name);

}  // namespace flash

#endif  // SERVER_MODEL_CONFIG_H_
