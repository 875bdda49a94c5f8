// The last tokens of a text: what a snapshot of it must say of them.

#ifndef SERVER_SCHEDULER_RECENT_TOKENS_H_
#define SERVER_SCHEDULER_RECENT_TOKENS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "server/model/sampling.h"
#include "server/scheduler/snapshot.h"

namespace flash {

// Remembers the last kMaxPenaltyWindow tokens at least and twice as many at
// most. Memory grows with the tokens that there are; an append takes constant
// time in the mean.
//
// Thread safety: one thread at a time; const functions from several. A copy
// goes on independently.
class RecentTokens {
 public:
  // After `before` (null: nothing).
  explicit RecentTokens(const Snapshot* before);

  void Append(int32_t id, bool is_output);
  void AppendPrompt(std::span<const int32_t> ids);

  // Of the whole text.
  int64_t num_tokens() const { return num_tokens_; }

  // The text ends after that many of its tokens. REQUIRES: Knows(num_tokens).
  void Truncate(int64_t num_tokens);

  // Whether everything after the text's first `num_tokens` tokens is
  // remembered, and not more than a snapshot may leave pending.
  bool Knows(int64_t num_tokens) const;

  // Tokens `first` to `end`, by their place in the text. REQUIRES:
  // Knows(first).
  std::vector<int32_t> Ids(int64_t first, int64_t end) const;

  // The last kMaxPenaltyWindow, or all that are remembered.
  std::vector<RecentToken> Last() const;

 private:
  std::vector<uint32_t>
      tokens_;  // 2 * id + 1 if it was generated, 2 * id if not
  int64_t num_tokens_ = 0;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_RECENT_TOKENS_H_
