// What the decode loop asks of a language model: slots, and steps over them.
//
// The scheduler is written against this interface and knows nothing of FLASH:
// it knows slots, rows, and that a run of rows lies within one chunk.

#ifndef SERVER_MODEL_LANGUAGE_MODEL_H_
#define SERVER_MODEL_LANGUAGE_MODEL_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/tensor.h"

namespace flash {

// Whose logits somebody needs; for the others they are not computed.
enum class LogitsWanted { kNone, kLast, kAll };

// The most drafted tokens of a run.
inline constexpr int kMaxDraftedTokens = 14;

// Consecutive tokens of one slot, run in one step. They stand at the slot's
// position and after it, and may not cross a multiple of chunk_size().
struct Run {
  int slot = 0;
  std::span<const int32_t> tokens;  // at least one; each in [0, vocab_size)
  LogitsWanted logits = LogitsWanted::kNone;
  // How many tokens at the end are guesses: fewer than there are tokens. If
  // there are any, the run has at most 1 + kMaxDraftedTokens tokens and ends
  // before its chunk's last position, and LanguageModel::Keep() has to say
  // which of its tokens stay.
  int num_drafted = 0;
};

struct RunResult {
  // [0, 1 or num tokens; V]: the logits after the tokens that were asked for.
  // Valid until the next call of Step().
  MatrixView<const float> logits;
  // True if an activation or a logit of this run was not a finite number. The
  // slot is then of no further use before Reset(), unless the run had drafts:
  // they may be what is wrong, so Keep(slot, 0) and a run without them tell.
  // Other runs are unaffected.
  bool faulted = false;
};

// Thread safety: one thread at a time (the decode thread), but for the sizes,
// which never change.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual int vocab_size() const = 0;
  virtual int chunk_size() const = 0;
  virtual int num_slots() const = 0;
  virtual int max_rows() const = 0;         // tokens in one step, all runs
  virtual int max_logits_rows() const = 0;  // wanted logits in one step

  // Makes the slot that of a request before its first token. Every byte of its
  // state is zero afterwards: nothing of an earlier request is left.
  virtual void Reset(int slot) = 0;

  // Makes `to` an exact copy of `from`.
  virtual void CopySlot(int from, int to) = 0;

  // How many tokens the slot has been given since Reset().
  virtual int64_t position(int slot) const = 0;

  // Runs the tokens of all runs through the network. `results` has one entry
  // for each run. REQUIRES: at least one run; no slot twice; no run crosses a
  // chunk boundary; within max_rows() and max_logits_rows(); Keep() was called
  // for the slots whose last run had drafts.
  //
  // Fails only if the device does; the model is then of no further use.
  virtual absl::Status Step(std::span<const Run> runs,
                            std::vector<RunResult>& results) = 0;

  // After a step in which the slot's run had drafts: the run's first `tokens`
  // tokens stay, the others have never been. Copies nothing. No bit of what
  // comes later depends on what was drafted. REQUIRES: called once, before the
  // slot's next run or CopySlot() from it; not needed before Reset().
  virtual void Keep(int slot, int64_t tokens) = 0;

  // The form and the types of what Save() writes: a state moves only between
  // models for which this, the weights and the numerics are equal.
  virtual std::string state_format() const = 0;

  // Everything that the slot remembers, its position included, as bytes. At a
  // chunk boundary they are as many whatever the position; within a chunk they
  // grow with its tokens. The slot goes on as if nothing had happened.
  // Fails only if the device does; the model is then of no further use.
  // REQUIRES: no Keep() is due.
  virtual absl::StatusOr<std::string> Save(int slot) = 0;

  // Makes the slot the one that was saved: no bit of what comes later differs,
  // and nothing of what it held before is left. INVALID_ARGUMENT if `state` is
  // not one that Save() can have written; the slot is then as after Reset().
  // Any other error is the device's, as Step() has them.
  virtual absl::Status Load(int slot, std::string_view state) = 0;

  // OK if Load() would take `state`, and the slot then had been given
  // `position` tokens; INVALID_ARGUMENT otherwise. Any thread.
  virtual absl::Status CheckState(std::string_view state,
                                  int64_t position) const = 0;
};

}  // namespace flash

#endif  // SERVER_MODEL_LANGUAGE_MODEL_H_
