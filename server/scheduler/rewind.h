// The way back to before a stop string. When one is complete, the model has
// read where it begins; what is saved of the text must not have.

#ifndef SERVER_SCHEDULER_REWIND_H_
#define SERVER_SCHEDULER_REWIND_H_

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>

#include "server/scheduler/output_text.h"
#include "server/scheduler/snapshot.h"
#include "server/tokenizer/detokenizer.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {

// Knows where the text that is held back begins in tokens, and keeps a state at
// or before that: of a chunk boundary, where states are small.
//
// The text is cut at a border: between two tokens, and where no character is
// incomplete. What of the text lies between the last border and the cut itself
// is encoded again.
//
// Memory is bounded by the longest stop string.
//
// Thread safety: one thread at a time. A copy goes on independently.
class Rewind {
 public:
  // Of the output of a text of `num_tokens` tokens. `point`: where its own text
  // begins. `base`: a state of it. If something is held back or incomplete at
  // `point`, the tokens after `base`, which are `pending`, say where in them
  // that is. (They do not if it was saved of a request without
  // Request::save: no cut then goes back to before them.)
  Rewind(const Tokenizer& tokenizer, const OutputText::Point& point,
         int64_t num_tokens, std::span<const int32_t> pending, SavedState base);

  // The output has taken `id`, and `released` bytes of its text are told now.
  void Push(int32_t id, int64_t released);

  // No cut falls before that many tokens any more.
  int64_t floor() const { return borders_.front().num_tokens; }

  struct Cut {
    int64_t num_tokens = 0;                             // stay
    Tokenizer::Place place = Tokenizer::Place::kLater;  // of the next token
    std::string text;  // of the output, that is in no token that stays
  };
  // Ends the output after `size` bytes of its text: not fewer than are told.
  Cut CutAt(int64_t size);
  // Ends the text where it stands.
  void End();

  // A state at or before floor().
  const SavedState& base() const { return base_; }
  // Whether the state at `position` should become the base: no boundary that
  // the slot comes to without further tokens would be a better one.
  bool Wants(int64_t position, int chunk_size) const;
  // Returns the one before.
  SavedState SetBase(SavedState base);
  // Gives it away: there is no way back any more.
  SavedState TakeBase() { return std::exchange(base_, {}); }

 private:
  struct Border {
    int64_t num_tokens = 0;
    int64_t text_end = 0;  // bytes of the output's text before it
    Tokenizer::Place place = Tokenizer::Place::kLater;
  };

  void Take(int32_t id);
  // Forgets the borders that no cut can need.
  void Release(int64_t released);

  Detokenizer detokenizer_;
  int64_t num_tokens_ = 0;
  int64_t text_size_ = 0;
  std::deque<Border> borders_;  // at least one; text_end rises
  std::string tail_;            // the text after the first border
  SavedState base_;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_REWIND_H_
