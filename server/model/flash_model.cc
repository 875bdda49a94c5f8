#include "server/model/flash_model.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace flash {
namespace {

// More than any text has.
constexpr int64_t kMaxPosition = int64_t{1} << 48;

// The shift's ring holds a run with drafts and the row before it.
static_assert(1 + kMaxDraftedTokens < kShiftRows);

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  std::ostringstream text;
  text << file.rdbuf();  // fails, and does not throw, where it is a directory
  if (file.bad() || text.str().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": empty, or not a file that can be read"));
  }
  return std::move(text).str();
}

DataType ChooseWeights(const Backend& backend, const CheckpointWeights& weights,
                       const FlashModel::Options& options) {
  if (options.weights.has_value()) return *options.weights;
  const bool narrow = weights.layers[0].uvz_weight.type == DataType::kBFloat16;
  return narrow && backend.HasFastBFloat16() ? DataType::kBFloat16
                                             : DataType::kFloat32;
}

}  // namespace

absl::StatusOr<ModelFiles> ModelFiles::Open(const std::string& directory) {
  const std::string config_path = directory + "/config.json";
  absl::StatusOr<std::string> json = ReadFile(config_path);
  if (!json.ok()) return json.status();
  absl::StatusOr<ModelConfig> config = ParseModelConfig(*json, config_path);
  if (!config.ok()) return config.status();
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(directory);
  if (!checkpoint.ok()) return checkpoint.status();
  absl::StatusOr<CheckpointWeights> weights =
      CheckWeights(*config, *checkpoint);
  if (!weights.ok()) return weights.status();
  return ModelFiles{.directory = directory,
                    .config = *std::move(config),
                    .config_json = *std::move(json),
                    .checkpoint = *std::move(checkpoint),
                    .weights = *std::move(weights)};
}

absl::StatusOr<std::unique_ptr<FlashModel>> FlashModel::Create(
    Backend& backend, const ModelConfig& config,
    const CheckpointWeights& weights, const Options& options) {
  const DataType stored = ChooseWeights(backend, weights, options);
  const DataType cache = options.cache.value_or(
      stored == DataType::kFloat32 ? DataType::kFloat32 : DataType::kBFloat16);
  absl::StatusOr<std::unique_ptr<Network>> network =
      Network::Create(backend, config, weights,
                      {.stored = stored,
                       .max_rows = options.max_rows,
                       .max_logits_rows = options.max_logits_rows});
  if (!network.ok()) return network.status();
  FLASH_CHECK(options.slots.has_value() || options.choose_slots != nullptr);
  const absl::StatusOr<int> slots =
      options.slots.has_value()
          ? *options.slots
          : options.choose_slots(StateLayout::Of(config, cache));
  if (!slots.ok()) return slots.status();
  absl::StatusOr<std::unique_ptr<DecodeStates>> states =
      DecodeStates::Create(backend, config, cache, *slots);
  if (!states.ok()) return states.status();
  return std::unique_ptr<FlashModel>(new FlashModel(
      config, options, stored, *std::move(network), *std::move(states)));
}

FlashModel::FlashModel(const ModelConfig& config, const Options& options,
                       DataType weights_type, std::unique_ptr<Network> network,
                       std::unique_ptr<DecodeStates> states)
    : config_(config),
      max_rows_(options.max_rows),
      max_logits_rows_(options.max_logits_rows),
      weights_type_(weights_type),
      network_(std::move(network)),
      states_(std::move(states)) {
  rows_.reserve(max_rows_);
  row_runs_.reserve(max_rows_);
  for (FoldPlan* plan : {&folds_before_, &folds_put_off_, &folds_after_}) {
    plan->folds.reserve(max_rows_ * config_.num_layers);
    plan->begin.reserve(config_.num_layers + 1);
  }
  logits_rows_.reserve(max_logits_rows_);
  faults_.reserve(max_rows_);
}

int FlashModel::vocab_size() const {
  return static_cast<int>(config_.vocab_size);
}

int FlashModel::chunk_size() const {
  return static_cast<int>(config_.chunk_size);
}

void FlashModel::PlanRun(const Run& run) {
  const int64_t begin = states_->position(run.slot);
  const int64_t offset = begin % config_.chunk_size;
  const int64_t size = static_cast<int64_t>(run.tokens.size());
  FLASH_CHECK(size > 0 && offset + size <= config_.chunk_size);
  FLASH_CHECK(run.num_drafted >= 0 && run.num_drafted < size);
  FLASH_CHECK(run.num_drafted == 0 || (size <= 1 + kMaxDraftedTokens &&
                                       offset + size < config_.chunk_size));
  // Learned positions have a table of so many rows.
  FLASH_CHECK(!config_.max_length.has_value() ||
              begin + size <= *config_.max_length);
  row_runs_.push_back({.first_row = static_cast<int32_t>(rows_.size()),
                       .num_rows = static_cast<int32_t>(size)});
  const double past = static_cast<double>(begin - offset);
  double lambda = 0;
  if (config_.linear.has_value() && past > 0) {
    lambda = config_.linear->scale / (config_.linear->mean_past ? past : 1);
  }
  for (int64_t n = 0; n < size; ++n) {
    FLASH_CHECK(run.tokens[n] >= 0 && run.tokens[n] < config_.vocab_size);
    double weight = 1;
    if (config_.quadratic.has_value()) {
      weight = config_.quadratic->weight_scale;
      if (config_.quadratic->row_mean) weight /= offset + n + 1;
    }
    rows_.push_back({.token = run.tokens[n],
                     .slot = run.slot,
                     .offset = static_cast<int32_t>(offset + n),
                     .position = begin + n,
                     .linear_scale = static_cast<float>(lambda),
                     .weight_scale = static_cast<float>(weight)});
    if (run.logits == LogitsWanted::kAll ||
        (run.logits == LogitsWanted::kLast && n + 1 == size)) {
      logits_rows_.push_back(static_cast<int32_t>(rows_.size()) - 1);
    }
  }
}

void FlashModel::PlanFolds(std::span<const Run> runs) {
  const auto add = [](FoldPlan& plan, const Fold& fold) {
    if (fold.first < fold.last) plan.folds.push_back(fold);
  };
  for (FoldPlan* plan : {&folds_before_, &folds_put_off_, &folds_after_}) {
    plan->folds.clear();
    plan->begin.assign(1, 0);
  }
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    for (const Run& run : runs) {
      // Drafts may be taken back, and with them all of their run (a fault of
      // theirs is one of the run): none of it is folded before the next step.
      const int64_t size = static_cast<int64_t>(run.tokens.size());
      const int64_t end = states_->position(run.slot) % config_.chunk_size +
                          (run.num_drafted > 0 ? 0 : size);
      if (states_->MayPutOff(run.slot, layer, size)) {
        add(folds_put_off_, states_->FoldLeft(run.slot, layer));
      } else {
        add(folds_before_, states_->FoldBefore(run.slot, layer));
      }
      add(folds_after_, states_->FoldAfter(run.slot, layer, end));
    }
    for (FoldPlan* plan : {&folds_before_, &folds_put_off_, &folds_after_}) {
      plan->begin.push_back(static_cast<int32_t>(plan->folds.size()));
    }
  }
}

void FlashModel::Plan(std::span<const Run> runs) {
  rows_.clear();
  row_runs_.clear();
  logits_rows_.clear();
  for (const Run& run : runs) PlanRun(run);
  PlanFolds(runs);
  FLASH_CHECK(static_cast<int>(rows_.size()) <= max_rows_ &&
              static_cast<int>(logits_rows_.size()) <= max_logits_rows_);
  faults_.assign(rows_.size(), 0);
}

absl::Status FlashModel::Step(std::span<const Run> runs,
                              std::vector<RunResult>& results) {
  FLASH_CHECK(!runs.empty());
  Plan(runs);
  const absl::StatusOr<MatrixView<const float>> logits =
      network_->Run({.rows = {.rows = rows_, .runs = row_runs_},
                     .folds_before = folds_before_,
                     .folds_put_off = folds_put_off_,
                     .folds_after = folds_after_,
                     .logits_rows = logits_rows_},
                    *states_, faults_);
  if (!logits.ok()) return logits.status();
  results.clear();
  int64_t wanted = 0;  // logits rows of the runs before this one
  for (size_t r = 0; r < runs.size(); ++r) {
    const RowRun& rows = row_runs_[r];
    const int64_t count = runs[r].logits == LogitsWanted::kAll ? rows.num_rows
                          : runs[r].logits == LogitsWanted::kLast ? 1
                                                                  : 0;
    const auto first = faults_.begin() + rows.first_row;
    results.push_back(
        {.logits = {logits->Row(wanted), count, logits->cols,
                    logits->row_stride},
         .faulted = std::any_of(first, first + rows.num_rows,
                                [](uint8_t fault) { return fault != 0; })});
    wanted += count;
    if (runs[r].num_drafted > 0) {
      states_->AdvanceForNow(runs[r].slot, rows.num_rows);
    } else {
      states_->Advance(runs[r].slot, rows.num_rows);
    }
  }
  return absl::OkStatus();
}

void FlashModel::PlanFoldOfEach(const std::function<Fold(int layer)>& fold_of,
                                FoldPlan& plan) const {
  plan.folds.clear();
  plan.begin.assign(1, 0);
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    const Fold fold = fold_of(layer);
    if (fold.closes) plan.folds.push_back(fold);
    plan.begin.push_back(static_cast<int32_t>(plan.folds.size()));
  }
}

std::string FlashModel::state_format() const {
  return absl::StrCat(
      "flash-state/1 layers=", config_.num_layers,
      " query_key_size=", config_.query_key_size,
      " expanded_size=", config_.expanded_size,
      " chunk_size=", config_.chunk_size,
      " quadratic=", config_.quadratic.has_value(),
      " linear=", config_.linear.has_value(),
      " shift=", config_.token_shift ? config_.hidden_size : 0,
      " cache=", cache_type() == DataType::kFloat32 ? "float32" : "bfloat16");
}

absl::StatusOr<std::string> FlashModel::Save(int slot) {
  // What a closed chunk has left to fold is folded now, which it may at any
  // time: then nothing of that chunk need be saved.
  PlanFoldOfEach([&](int layer) { return states_->FoldBefore(slot, layer); },
                 folds_before_);
  if (!folds_before_.folds.empty()) {
    const absl::Status folded = network_->Fold(folds_before_, *states_);
    if (!folded.ok()) return folded;
  }
  return states_->Save(slot);
}

absl::Status FlashModel::CheckState(std::string_view state,
                                    int64_t position) const {
  const absl::StatusOr<int64_t> found =
      states_->PositionOf(state, config_.max_length.value_or(kMaxPosition));
  if (!found.ok()) return found.status();
  if (*found == position) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a state after ", *found, " tokens, not after ", position));
}

absl::Status FlashModel::Load(int slot, std::string_view state) {
  const absl::Status status =
      states_->Load(slot, state, config_.max_length.value_or(kMaxPosition));
  const int64_t position = states_->position(slot);
  if (!status.ok() || position == 0 || position % config_.chunk_size != 0 ||
      !config_.linear.has_value()) {
    return status;
  }
  // At a boundary U is not saved: it is the sum, in the cache's type.
  PlanFoldOfEach([&](int) -> Fold { return {.slot = slot, .closes = true}; },
                 folds_before_);
  return network_->Fold(folds_before_, *states_);
}

}  // namespace flash
