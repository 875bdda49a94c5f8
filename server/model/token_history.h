// What the penalties look back at: the last tokens of prompt and output.

#ifndef SERVER_MODEL_TOKEN_HISTORY_H_
#define SERVER_MODEL_TOKEN_HISTORY_H_

#include <cstdint>
#include <span>
#include <vector>

namespace flash {

// The last `window` tokens of prompt and output joined, with how often each id
// stands among them.
//
// With every token the window moves by one: after N tokens it holds tokens
// N - window .. N - 1, and what was before counts no more, neither a prompt's
// token for the repetition penalty nor an output's for any. Prior ids of a
// continued output are appended as output, which is all it takes to go on as if
// they had been generated here.
//
// All memory is taken by the constructor, in proportion to the window; append
// takes constant time.
//
// Thread safety: one thread at a time; const functions from several. A copy
// goes on independently (several outputs of one prompt).
class TokenHistory {
 public:
  // REQUIRES: window >= 0. 0 remembers nothing. No more than the tokens that
  // the request can have in all is ever needed:
  // min(penalty_window, prompt + max_tokens) gives the same answers.
  explicit TokenHistory(int32_t window);

  // Appends tokens of the prompt. REQUIRES: every id >= 0.
  void AppendPrompt(std::span<const int32_t> ids);
  // Appends one token of the output. REQUIRES: id >= 0.
  void AppendOutput(int32_t id);

  // An id that stands in the window.
  struct Entry {
    int32_t id = 0;
    int32_t in_output = 0;  // times in the output's part of the window
    int32_t in_all = 0;     // times in the window; at least 1
  };

  // Each id once, in no particular order. Valid until the next append.
  std::span<const Entry> entries() const {
    return std::span(entries_).first(num_entries_);
  }

  int32_t window() const { return window_; }

 private:
  // A token in the ring: 2 * id + 1 if it belongs to the output, 2 * id if not.
  using Token = uint32_t;

  void Append(Token token);
  void Count(Token token);
  void Forget(Token token);
  // Where in table_ the id stands, or the free place where it would.
  uint32_t Find(int32_t id) const;
  uint32_t Home(int32_t id) const;
  // Frees a place of table_, closing the gap in its probe chain.
  void Vacate(uint32_t place);

  int32_t window_ = 0;
  // Both have window_ places from the start, also in a copy.
  std::vector<Token> ring_;
  std::vector<Entry> entries_;
  int32_t num_tokens_ = 0;   // in ring_
  int32_t next_ = 0;         // where the next token goes; the oldest, if full
  int32_t num_entries_ = 0;  // in entries_
  // Index into entries_ by id, -1 where free: open addressing with linear
  // probing, a power of two that is at least twice the window.
  std::vector<int32_t> table_;
  int hash_shift_ = 0;
};

}  // namespace flash

#endif  // SERVER_MODEL_TOKEN_HISTORY_H_
