// The text of one output as its tokens come: what may be sent already, what is
// held back, and where it stops.

#ifndef SERVER_SCHEDULER_OUTPUT_TEXT_H_
#define SERVER_SCHEDULER_OUTPUT_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/scheduler/stop_strings.h"
#include "server/tokenizer/detokenizer.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {

// Everything here is a function of the ids pushed so far: an output that is
// continued elsewhere (its prior ids pushed, what they release thrown away)
// goes on with the same deltas and the same offsets.
//
// What is released is never taken back: held back are an incomplete character
// (at most 3 bytes) and the longest end of the text that may still become a
// stop string (fewer bytes than the longest one has). Nothing else is kept, so
// memory is bounded however long the output. The deltas are valid UTF-8 each,
// and their concatenation is the output's text.
//
// Stop strings are searched for in the text, across tokens. StopSearch says
// which of several wins. The text ends where the stop string begins, or, with
// StopText::kKept, where it ends; what its token adds after that is dropped.
//
// Thread safety: one thread at a time. A copy goes on independently (several
// outputs of one request).
class OutputText {
 public:
  enum class StopText { kDropped, kKept };

  // Where a text stands between two tokens.
  struct Point {
    // Of the next token: what PlaceAfter() says of a prompt, as an output
    // continues its text.
    Tokenizer::Place place = Tokenizer::Place::kFirst;
    std::string incomplete = {};  // bytes of a character: at most 3
    std::string held = {};        // text that is held back: valid UTF-8
  };

  // `tokenizer` is borrowed. `stops`: valid UTF-8; may be null: none. What was
  // held back at `point` is the first of this text; stop strings that are
  // complete in it are passed over, and what of it these stop strings do not
  // hold back is released with the first token.
  OutputText(const Tokenizer& tokenizer, const Point& point,
             std::shared_ptr<const StopStrings> stops, StopText stop_text);

  // Where it stands now, for the one that goes on.
  Point point() const;

  struct Released {
    std::string text;              // valid UTF-8, perhaps empty
    int64_t offset = 0;            // bytes of the output's text before `text`
    std::optional<int> stop = {};  // index of the stop string that was found
    bool hides = false;            // with `stop`: text came that is not told
  };

  // kPassOver (before min_tokens; an EOS or stop token): a stop string that
  // this token completes is text like any other. One that it only begins counts
  // if a later token completes it.
  enum class Stops { kMatch, kPassOver };

  // Takes the next token. With `stop` set the text is over and complete: the
  // output needs no Finish().
  // REQUIRES: no stop string was found and Finish() was not called.
  Released Push(int32_t id, Stops stops);

  // Ends the text for any other reason: releases what was held back, with
  // U+FFFD for a character left incomplete. Never matches a stop string.
  // Releases nothing if a stop string was found or the text is finished.
  Released Finish();

  // The bytes that `id` would add, for TokenInfo::piece. Changes nothing.
  std::string Piece(int32_t id) const { return detokenizer_.Piece(id); }

  // Bytes released so far.
  int64_t size() const { return released_; }

 private:
  // Releases all but the last `num_held` bytes of held_.
  Released Release(size_t num_held);

  Detokenizer detokenizer_;
  std::shared_ptr<const StopStrings> stops_;  // not null
  StopSearch search_;
  StopText stop_text_;
  std::string held_;  // text that is not released yet
  int64_t released_ = 0;
  bool over_ = false;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_OUTPUT_TEXT_H_
