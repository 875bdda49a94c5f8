// A FLASH model behind the LanguageModel interface: the network, its slots, and
// what a step of runs is in rows and folds.

#ifndef SERVER_MODEL_FLASH_MODEL_H_
#define SERVER_MODEL_FLASH_MODEL_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/model/config.h"
#include "server/model/decode_state.h"
#include "server/model/language_model.h"
#include "server/model/network.h"

namespace flash {

// A model directory, opened and checked but for the weights' values. `weights`
// points into `checkpoint`, which may go once the model is made.
struct ModelFiles {
  std::string directory;
  ModelConfig config;
  std::string config_json;  // the text of config.json
  Checkpoint checkpoint;
  CheckpointWeights weights;

  // Errors: those of ParseModelConfig(), Checkpoint::Open() and CheckWeights();
  // NOT_FOUND if there is no config.json.
  static absl::StatusOr<ModelFiles> Open(const std::string& directory);
};

class FlashModel final : public LanguageModel {
 public:
  struct Options {
    // Unset: what the checkpoint has where the backend is fast at it, else
    // float32.
    std::optional<DataType> weights = std::nullopt;
    // Unset: float32 for float32 weights, else bfloat16.
    std::optional<DataType> cache = std::nullopt;
    // Unset: what choose_slots() says, which is asked once the weights are in
    // place; its error is returned. One of the two is set.
    std::optional<int> slots = std::nullopt;
    std::function<absl::StatusOr<int>(const StateLayout&)> choose_slots =
        nullptr;
    int max_rows = 256;  // of a step
    int max_logits_rows = 64;
  };

  // RESOURCE_EXHAUSTED if there is not memory for the slots; else the errors of
  // Network::Create(). REQUIRES: `backend` outlives the model.
  static absl::StatusOr<std::unique_ptr<FlashModel>> Create(
      Backend& backend, const ModelConfig& config,
      const CheckpointWeights& weights, const Options& options);

  const ModelConfig& config() const { return config_; }
  DataType weights_type() const { return weights_type_; }
  DataType cache_type() const { return states_->layout().cache; }
  const StateLayout& layout() const { return states_->layout(); }
  int64_t slot_bytes() const { return states_->layout().slot_bytes; }
  size_t weight_bytes() const { return network_->weight_bytes(); }
  const DecodeStates& states() const { return *states_; }

  // What the last step moved: Backend::StepBytes().
  int64_t step_bytes() const { return network_->step_bytes(); }
  // DecodeStates::Jump().
  void Jump(int slot, int64_t chunks) { states_->Jump(slot, chunks); }

  int vocab_size() const override;
  int chunk_size() const override;
  int num_slots() const override { return states_->num_slots(); }
  int max_rows() const override { return max_rows_; }
  int max_logits_rows() const override { return max_logits_rows_; }

  void Reset(int slot) override { states_->Reset(slot); }
  void CopySlot(int from, int to) override { states_->Copy(from, to); }
  int64_t position(int slot) const override { return states_->position(slot); }
  absl::Status Step(std::span<const Run> runs,
                    std::vector<RunResult>& results) override;
  void Keep(int slot, int64_t tokens) override { states_->Keep(slot, tokens); }
  std::string state_format() const override;
  absl::StatusOr<std::string> Save(int slot) override;
  absl::Status Load(int slot, std::string_view state) override;
  absl::Status CheckState(std::string_view state,
                          int64_t position) const override;

 private:
  FlashModel(const ModelConfig& config, const Options& options,
             DataType weights_type, std::unique_ptr<Network> network,
             std::unique_ptr<DecodeStates> states);

  // The step's rows, folds and wanted logits, from its runs.
  void Plan(std::span<const Run> runs);
  void PlanRun(const Run& run);
  void PlanFolds(std::span<const Run> runs);
  // Makes a plan of one fold, or none, of each layer.
  void PlanFoldOfEach(const std::function<Fold(int layer)>& fold_of,
                      FoldPlan& plan) const;

  const ModelConfig config_;
  const int max_rows_;
  const int max_logits_rows_;
  const DataType weights_type_;
  const std::unique_ptr<Network> network_;
  const std::unique_ptr<DecodeStates> states_;

  // Of the step in hand; reserved once.
  std::vector<Row> rows_;
  std::vector<RowRun> row_runs_;
  FoldPlan folds_before_;
  FoldPlan folds_put_off_;
  FoldPlan folds_after_;
  std::vector<int32_t> logits_rows_;
  std::vector<uint8_t> faults_;
};

}  // namespace flash

#endif  // SERVER_MODEL_FLASH_MODEL_H_
