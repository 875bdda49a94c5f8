// Runs a FlashModel as tests want it: texts in runs of any size, and every
// logit that comes out, to be compared bit by bit.

#ifndef TESTS_SERVER_MODEL_MODEL_RUNNER_H_
#define TESTS_SERVER_MODEL_MODEL_RUNNER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/model/flash_model.h"
#include "tests/reference/random_model.h"
#include "tests/reference/temporary_directory.h"

namespace flash {

// What a model is run on and in.
struct RunnerSettings {
  std::string isa = "auto";
  int threads = 1;
  DataType weights = DataType::kFloat32;
  DataType cache = DataType::kFloat32;
  int slots = 4;
};

using LogitsRow = std::vector<float>;

class ModelRunner {
 public:
  ModelRunner(const ModelFiles& files, const RunnerSettings& settings)
      : pool_(settings.threads) {
    auto backend = MakeCpuBackend(pool_, settings.isa);
    FLASH_CHECK(backend.ok());
    backend_ = *std::move(backend);
    MakeModel(files, settings);
  }
  // On another backend than the CPU's.
  ModelRunner(const ModelFiles& files, const RunnerSettings& settings,
              std::unique_ptr<Backend> backend)
      : pool_(settings.threads), backend_(std::move(backend)) {
    MakeModel(files, settings);
  }

  FlashModel& model() { return *model_; }

  // The most tokens, of at most `limit`, that the slot can take in one run.
  int64_t RoomInChunk(int slot, int64_t limit) const {
    const int64_t chunk = model_->chunk_size();
    return std::min(limit, chunk - model_->position(slot) % chunk);
  }

  // One step of one slot; the logits after each token.
  std::vector<LogitsRow> Step(int slot, std::span<const int32_t> tokens) {
    const Run run = {
        .slot = slot, .tokens = tokens, .logits = LogitsWanted::kAll};
    FLASH_CHECK(model_->Step(std::span(&run, 1), results_).ok());
    return Rows(results_[0]);
  }

  // The most tokens that can be drafted after one in the slot's next run.
  int64_t RoomForDrafts(int slot) const {
    const int64_t chunk = model_->chunk_size();
    return std::clamp<int64_t>(chunk - 2 - model_->position(slot) % chunk, 0,
                               kMaxDraftedTokens);
  }

  // One token and then drafts; the logits after each. Keep() is to come.
  std::vector<LogitsRow> StepWithDrafts(int slot,
                                        std::span<const int32_t> tokens) {
    const Run run = {.slot = slot,
                     .tokens = tokens,
                     .logits = LogitsWanted::kAll,
                     .num_drafted = static_cast<int>(tokens.size()) - 1};
    FLASH_CHECK(model_->Step(std::span(&run, 1), results_).ok());
    return Rows(results_[0]);
  }

  // All of `ids`, in runs of `run_size` or up to the chunk's end.
  std::vector<LogitsRow> Feed(int slot, std::span<const int32_t> ids,
                              int64_t run_size) {
    std::vector<LogitsRow> logits;
    while (!ids.empty()) {
      const int64_t size = RoomInChunk(
          slot, std::min<int64_t>({run_size, static_cast<int64_t>(ids.size()),
                                   model_->max_rows()}));
      for (LogitsRow& row : Step(slot, ids.first(size))) {
        logits.push_back(std::move(row));
      }
      ids = ids.subspan(size);
    }
    return logits;
  }

  // A text from its beginning.
  std::vector<LogitsRow> Read(int slot, std::span<const int32_t> ids,
                              int64_t run_size) {
    model_->Reset(slot);
    return Feed(slot, ids, run_size);
  }

  static std::vector<LogitsRow> Rows(const RunResult& result) {
    std::vector<LogitsRow> rows;
    for (int64_t row = 0; row < result.logits.rows; ++row) {
      rows.emplace_back(result.logits.Row(row),
                        result.logits.Row(row) + result.logits.cols);
    }
    return rows;
  }

 private:
  void MakeModel(const ModelFiles& files, const RunnerSettings& settings) {
    auto model = FlashModel::Create(*backend_, files.config, files.weights,
                                    {.weights = settings.weights,
                                     .cache = settings.cache,
                                     .slots = settings.slots,
                                     .max_logits_rows = 256});
    FLASH_CHECK(model.ok());
    model_ = *std::move(model);
  }

  ThreadPool pool_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<FlashModel> model_;
  std::vector<RunResult> results_;
};

// A random model's files, which last as long as this.
class RandomModelFiles {
 public:
  RandomModelFiles(const ModelConfig& config,
                   const RandomModelOptions& options) {
    FLASH_CHECK(WriteRandomModel(config, options, directory_.path()).ok());
    auto files = ModelFiles::Open(directory_.path());
    FLASH_CHECK(files.ok());
    files_ = std::make_unique<ModelFiles>(*std::move(files));
  }
  const ModelFiles& files() const { return *files_; }

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<ModelFiles> files_;
};

inline std::vector<int32_t> RandomIds(const ModelConfig& config, int64_t size,
                                      uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids;
  for (int64_t n = 0; n < size; ++n) {
    ids.push_back(static_cast<int32_t>(random() % config.vocab_size));
  }
  return ids;
}

}  // namespace flash

#endif  // TESTS_SERVER_MODEL_MODEL_RUNNER_H_
