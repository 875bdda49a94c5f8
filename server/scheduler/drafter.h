// Guesses an output's next tokens from what it and its prompt have said before:
// code, logs and quotations repeat themselves.

#ifndef SERVER_SCHEDULER_DRAFTER_H_
#define SERVER_SCHEDULER_DRAFTER_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace flash {

// Looks for the latest place where the last tokens stand once before (three of
// them, else two), and guesses that what followed there follows again. A wrong
// guess costs time and nothing else, so how many are made depends on how the
// last ones fared: twice as many after guesses that were all right; as many as
// were right otherwise; and after none were, the next guess is a single one,
// later the more often that happens.
//
// All memory is taken by the constructor, in proportion to the window. Append()
// and a guess take constant time.
//
// Thread safety: one thread at a time. A copy goes on independently (several
// outputs of one prompt).
class Drafter {
 public:
  static constexpr int64_t kMaxWindow = 8192;

  // Remembers at least the last min(`window`, kMaxWindow) tokens. 0: none, and
  // guesses nothing.
  explicit Drafter(int64_t window);

  // What the output goes on from: tokens of its prompt or its own.
  void Append(int32_t id);
  void Append(std::span<const int32_t> ids);

  // The last token, and at most `max_drafted` guesses at those that follow.
  // Valid until the next Propose(). REQUIRES: a window, and a token.
  std::span<const int32_t> Propose(int max_drafted);

  // How many of the guesses were right. Called after the Append() of the tokens
  // that came.
  void Judge(int num_drafted, int num_right);

  // Guesses nothing before the next Append().
  void Pause() { resume_at_ = size_ + 1; }

 private:
  // The tokens whose earlier place is looked for.
  static constexpr std::array<int, 2> kGramSizes = {3, 2};

  int32_t At(int64_t index) const { return ring_[index & mask_]; }
  // The place in ends_ for the last `size` tokens. Different ones may share it.
  uint32_t Home(int size) const;
  // How far back the last tokens stand once more; 0 if nowhere that is known.
  int64_t FindPeriod() const;

  std::vector<int32_t> ring_;  // the last tokens: token t at t & mask_
  int64_t mask_ = -1;
  int hash_shift_ = 0;
  int64_t size_ = 0;  // tokens in all
  // For each gram size: by Home(), how many tokens there were when such a gram
  // was last seen, the last one included (modulo 2^32).
  std::array<std::vector<uint32_t>, kGramSizes.size()> ends_;
  std::array<uint32_t, kGramSizes.size()> last_ends_ = {};  // before the last

  int length_ = 1;         // guesses to make
  int64_t wait_ = 1;       // tokens to let pass when none are right
  int64_t resume_at_ = 0;  // of size_
  std::vector<int32_t> run_;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_DRAFTER_H_
