// Which rows the next step has.

#ifndef SERVER_SCHEDULER_BATCH_H_
#define SERVER_SCHEDULER_BATCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "server/model/language_model.h"
#include "server/scheduler/live_request.h"
#include "server/scheduler/row_budget.h"

namespace flash {

// The runs of one step and whose they are. A batch borrows from the requests,
// which must not change while it is in use.
struct Batch {
  struct Owner {
    LiveRequest* request = nullptr;
    LiveOutput* output = nullptr;
  };
  std::vector<Run> runs;
  std::vector<Owner> owners;  // one for each run
  int num_rows = 0;
  int num_prompt_rows = 0;  // of these; the others are of decoding outputs
  int num_decoders = 0;     // outputs that decode, whatever they draft
  int num_logits = 0;

  void Clear();
  void Add(const Run& run, const Owner& owner);
};

// Chooses rows so that nobody starves:
//   - every decoding output has one row in every step. If there are more of
//     them than rows or logits, those that have waited longest come first;
//   - if there are few, their drafted tokens come with them, as far as there is
//     room and up to the last position but one of a chunk;
//   - prompts (and prior ids) have what is left, as far as the row budget lets
//     them, which bounds the time of a step: in runs that end at a chunk
//     boundary or before. While some wait, a quarter of the step is kept for
//     them, or the budget if it is smaller, as far as they can use it: decoding
//     cannot shut them out;
//   - the oldest prompt comes first. If it does not end with this step, half of
//     the prompts' rows are for the others, those first that have waited
//     longest for one: so a long prompt has at least half of what there is, and
//     a short one that comes after it need not wait for its end.
// A request whose prior ids have not all been taken has no rows yet; nor has
// one of whose states a copy is due, nor an output that is over.
//
// Thread safety: the decode thread only.
class BatchBuilder {
 public:
  struct Limits {
    int max_rows = 0;
    int max_logits = 0;
    int chunk_size = 0;
  };

  // REQUIRES: limits of 2 at least if there is more than one slot.
  explicit BatchBuilder(const Limits& limits) : limits_(limits) {}

  // Replaces `batch` by the next step of `requests`, which stand in the order
  // of their admission. It is empty if nobody can go on.
  void Build(const std::vector<std::unique_ptr<LiveRequest>>& requests,
             const RowBudget& row_budget, Batch& batch);

 private:
  struct Budget {
    int rows = 0;
    int logits = 0;
  };

  void FindCandidates(
      const std::vector<std::unique_ptr<LiveRequest>>& requests);
  // A little more, if the oldest prompt is then at its chunk's end (or its own)
  // a step earlier.
  int Stretched(int max_prompt_rows) const;
  // Of the ids that are left, how many one chunk holds.
  int64_t ToBoundary(const Batch::Owner& owner) const;
  Budget KeptForPrompts(int max_prompt_rows) const;
  static Budget Less(const Budget& budget, const Budget& used);
  Budget Left(const Batch& batch) const;
  // Puts those who have waited longest first if not all of them fit.
  void OrderDecoders(int max_rows);
  void AddDecoders(int max_rows, Batch& batch);
  // The pending token, with the drafts for which there is room.
  Run DecoderRun(const Batch::Owner& owner, int max_rows) const;
  // Puts those behind the oldest first that have waited longest.
  void OrderPrompts();
  void AddPrompts(int max_rows, Batch& batch);
  // What the prompts from the `first` on would have of `budget`.
  Budget UseOfPrompts(size_t first, const Budget& budget) const;
  // What all but the oldest have a right to, and a use for, of `budget`.
  Budget UseOfOthers(const Budget& budget) const;
  // The next run of ids of `owner` within `budget`; perhaps empty. What is left
  // to the chunk's end is divided evenly over the steps that it takes: that
  // costs no step more, and none is longer than it need be.
  Run PromptRun(const Batch::Owner& owner, const Budget& budget) const;

  const Limits limits_;
  int64_t last_row_ = 0;  // counts the runs of decoders and waiting prompts
  std::vector<Batch::Owner> decoders_;
  size_t next_decoder_ = 0;            // the first that has no row yet
  std::vector<Batch::Owner> prompts_;  // the oldest request first
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_BATCH_H_
