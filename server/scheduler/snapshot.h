// A text that can be gone on with, outside of any slot: what the model
// remembers of it, and what the scheduler does.

#ifndef SERVER_SCHEDULER_SNAPSHOT_H_
#define SERVER_SCHEDULER_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/model/sampling.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {

// One of the last tokens of a text.
struct RecentToken {
  int32_t id = 0;
  bool is_output = false;  // it was generated; else it was given

  friend bool operator==(const RecentToken&, const RecentToken&) = default;
};

// What a slot held after `position` tokens of a text: LanguageModel::Save().
struct SavedState {
  int64_t position = 0;
  std::shared_ptr<const std::string> state;  // null if that is 0
};

// Immutable once it is made; shared between the sessions that are forks of each
// other. Its size has a bound that does not depend on the text's length.
//
// It covers exactly the tokens that were told to the client, but for the EOS or
// stop token that ended an output and for what became hidden stop text.
struct Snapshot {
  // LanguageModel::Save() after `position` tokens; null if that is 0.
  int64_t position = 0;
  std::shared_ptr<const std::string> state;

  // The text's tokens that are not in the state: a slot is given them first. At
  // most kMaxPenaltyWindow. The one an output chose last is always here, unless
  // it is no part of the text.
  std::vector<int32_t> pending;

  // EOS, a stop token or a stop string has ended the output: only a prompt can
  // follow.
  bool ended = false;

  // The last tokens of the text, the pending ones included, in order; as many
  // as penalties can look back at (kMaxPenaltyWindow).
  std::vector<RecentToken> recent;

  // Where the output's text stands, for the one that goes on without a prompt.
  Tokenizer::Place place = Tokenizer::Place::kFirst;  // of the next token
  std::string incomplete;  // bytes of a character that is not whole: at most 3
  std::string held;  // text that was held back: perhaps a stop string's begin

  // How it was sampled, likewise.
  uint64_t seed = 0;
  uint32_t output_index = 0;

  int64_t num_tokens() const {
    return position + static_cast<int64_t>(pending.size());
  }
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_SNAPSHOT_H_
