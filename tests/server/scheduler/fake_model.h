// A LanguageModel for the scheduler's tests: its logits are a function of the
// tokens that a slot has been given, and of nothing else.

#ifndef TESTS_SERVER_SCHEDULER_FAKE_MODEL_H_
#define TESTS_SERVER_SCHEDULER_FAKE_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/check.h"
#include "server/model/language_model.h"

namespace flash {

// Aborts where a precondition of LanguageModel is broken. Not synchronized: the
// decode thread steps it, and what it has recorded is read when that rests.
class FakeModel final : public LanguageModel {
 public:
  struct Sizes {
    int vocab_size = 260;
    int chunk_size = 8;
    int num_slots = 4;
    int max_rows = 24;
    int max_logits_rows = 12;
  };

  struct RecordedRun {
    int slot = 0;
    int64_t position = 0;
    std::vector<int32_t> tokens;
    LogitsWanted logits = LogitsWanted::kNone;
    int num_drafted = 0;
  };

  explicit FakeModel(const Sizes& sizes)
      : sizes_(sizes), slots_(sizes.num_slots) {}

  int vocab_size() const override { return sizes_.vocab_size; }
  int chunk_size() const override { return sizes_.chunk_size; }
  int num_slots() const override { return sizes_.num_slots; }
  int max_rows() const override { return sizes_.max_rows; }
  int max_logits_rows() const override { return sizes_.max_logits_rows; }

  void Reset(int slot) override { slots_[slot] = {.usable = true}; }
  void CopySlot(int from, int to) override {
    FLASH_CHECK(from != to && slots_[from].usable);
    FLASH_CHECK(slots_[from].num_undecided == 0);
    slots_[to] = slots_[from];
    ++num_copies;
  }
  int64_t position(int slot) const override { return slots_[slot].position(); }

  absl::Status Step(std::span<const Run> runs,
                    std::vector<RunResult>& results) override {
    Check(runs);
    if (before_step) before_step();
    if (static_cast<int>(steps.size()) == fail_at_step) {
      return absl::InternalError("lost the device");
    }
    steps.emplace_back();
    logits_.assign(sizes_.max_logits_rows * int64_t{sizes_.vocab_size}, 0);
    results.assign(runs.size(), {});
    int64_t next_row = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      RunOne(runs[i], next_row, results[i]);
      next_row += results[i].logits.rows;
    }
    if (after_step) after_step(steps.back());
    return absl::OkStatus();
  }

  void Keep(int slot, int64_t tokens) override {
    Slot& kept = slots_[slot];
    FLASH_CHECK(kept.num_undecided > 0 && tokens >= 0 &&
                tokens <= kept.num_undecided);
    FLASH_CHECK(kept.usable || tokens == 0);
    kept.tokens.resize(kept.position() - kept.num_undecided + tokens);
    kept.num_undecided = 0;
    kept.usable = true;
  }

  std::string state_format() const override { return "fake"; }

  // The tokens, as they stand in memory.
  absl::StatusOr<std::string> Save(int slot) override {
    FLASH_CHECK(slots_[slot].usable && slots_[slot].num_undecided == 0);
    if (fail_copies) return absl::UnknownError("lost the device");
    const std::vector<int32_t>& tokens = slots_[slot].tokens;
    ++num_saves;
    return std::string(reinterpret_cast<const char*>(tokens.data()),
                       tokens.size() * sizeof(int32_t));
  }

  absl::Status Load(int slot, std::string_view state) override {
    Reset(slot);
    if (fail_copies) return absl::UnknownError("lost the device");
    if (state.size() % sizeof(int32_t) != 0) {
      return absl::InvalidArgumentError("not a state of the fake model");
    }
    slots_[slot].tokens.resize(state.size() / sizeof(int32_t));
    std::memcpy(slots_[slot].tokens.data(), state.data(), state.size());
    return absl::OkStatus();
  }

  absl::Status CheckState(std::string_view state,
                          int64_t position) const override {
    if (state.size() == static_cast<size_t>(position) * sizeof(int32_t)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("not a state of the fake model");
  }

  // The logits after `tokens`, by definition.
  std::vector<float> LogitsAfter(std::span<const int32_t> tokens) const {
    if (context > 0 && tokens.size() > context) tokens = tokens.last(context);
    uint64_t hash = 0;
    for (int32_t token : tokens) hash = Mix(hash, token);
    std::vector<float> logits(sizes_.vocab_size);
    Fill(hash, logits);
    return logits;
  }

  // What a test may set.
  std::vector<float> bias;  // [V] or empty: added to every row of logits
  size_t context = 0;       // tokens that the logits depend on; 0: on all
  std::function<void()> before_step;
  std::function<void(const std::vector<RecordedRun>&)> after_step;
  int fail_at_step = -1;
  bool fail_copies = false;  // Save() and Load(), as the device does
  std::function<bool(const RecordedRun&)> faults;  // empty: never

  // What happened.
  std::vector<std::vector<RecordedRun>> steps;
  int num_copies = 0;
  int num_saves = 0;

 private:
  struct Slot {
    bool usable = false;
    std::vector<int32_t> tokens = {};
    int64_t num_undecided = 0;  // of them: a run with drafts

    int64_t position() const { return static_cast<int64_t>(tokens.size()); }
  };

  static uint64_t Mix(uint64_t hash, uint64_t value) {
    uint64_t x = hash + 0x9E3779B97F4A7C15 * (value + 1);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }

  void Fill(uint64_t hash, std::span<float> logits) const {
    for (size_t id = 0; id < logits.size(); ++id) {
      const uint64_t bits = Mix(hash ^ 0x5555, id) >> 40;  // 24 of them
      logits[id] = static_cast<float>(bits) / (1 << 21) - 4.0f;
      if (!bias.empty()) logits[id] += bias[id];
    }
  }

  void Check(std::span<const Run> runs) const {
    std::set<int> seen;
    int num_rows = 0;
    int num_logits = 0;
    FLASH_CHECK(!runs.empty());
    for (const Run& run : runs) {
      const int n = static_cast<int>(run.tokens.size());
      FLASH_CHECK(run.slot >= 0 && run.slot < sizes_.num_slots);
      FLASH_CHECK(seen.insert(run.slot).second);
      FLASH_CHECK(slots_[run.slot].usable && n > 0);
      const int64_t end = slots_[run.slot].position() % sizes_.chunk_size + n;
      FLASH_CHECK(end <= sizes_.chunk_size);
      FLASH_CHECK(slots_[run.slot].num_undecided == 0);
      FLASH_CHECK(run.num_drafted >= 0 && run.num_drafted < n);
      if (run.num_drafted > 0) {
        FLASH_CHECK(n <= 1 + kMaxDraftedTokens && end < sizes_.chunk_size);
        FLASH_CHECK(run.logits == LogitsWanted::kAll);
      }
      for (int32_t token : run.tokens) {
        FLASH_CHECK(token >= 0 && token < sizes_.vocab_size);
      }
      num_rows += n;
      num_logits += run.logits == LogitsWanted::kAll    ? n
                    : run.logits == LogitsWanted::kLast ? 1
                                                        : 0;
    }
    FLASH_CHECK(num_rows <= sizes_.max_rows);
    FLASH_CHECK(num_logits <= sizes_.max_logits_rows);
  }

  void RunOne(const Run& run, int64_t first_row, RunResult& result) {
    Slot& slot = slots_[run.slot];
    steps.back().push_back({run.slot,
                            slot.position(),
                            {run.tokens.begin(), run.tokens.end()},
                            run.logits,
                            run.num_drafted});
    const int64_t n = static_cast<int64_t>(run.tokens.size());
    result.logits = {logits_.data() + first_row * sizes_.vocab_size, 0,
                     sizes_.vocab_size, sizes_.vocab_size};
    for (int64_t i = 0; i < n; ++i) {
      slot.tokens.push_back(run.tokens[i]);
      if (run.logits == LogitsWanted::kAll ||
          (run.logits == LogitsWanted::kLast && i == n - 1)) {
        float* row = logits_.data() +
                     (first_row + result.logits.rows++) * sizes_.vocab_size;
        const std::vector<float> logits = LogitsAfter(slot.tokens);
        std::copy(logits.begin(), logits.end(), row);
      }
    }
    result.faulted = faults && faults(steps.back().back());
    slot.usable = !result.faulted;
    if (run.num_drafted > 0) slot.num_undecided = n;
  }

  const Sizes sizes_;
  std::vector<Slot> slots_;
  std::vector<float> logits_;  // of the last step
};

}  // namespace flash

#endif  // TESTS_SERVER_SCHEDULER_FAKE_MODEL_H_
