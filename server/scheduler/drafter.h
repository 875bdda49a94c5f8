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
// them, else two), and guesses that what followed there follows again. How many
// guesses are worth their rows depends on how often such a guess is right; that
// is learned from every token that comes, whether it was guessed aloud or not,
// so a text that does not repeat itself costs nothing.
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

  // The last token, and at most `max_drafted` guesses at those that follow,
  // each of them right with a chance of `least_chance`, in (0, 1), or better.
  // Valid until the next Propose(). REQUIRES: a window, and a token.
  std::span<const int32_t> Propose(int max_drafted, float least_chance);

  // Guesses nothing before the next Append().
  void Pause() { resume_at_ = size_ + 1; }

 private:
  // The tokens whose earlier place is looked for.
  static constexpr std::array<int, 2> kGramSizes = {3, 2};

  int32_t At(int64_t index) const { return ring_[index & mask_]; }
  // The place in ends_ for the last `size` tokens. Different ones may share it.
  uint32_t Home(int size) const;
  // Where the last tokens stand once more.
  struct Repeat {
    size_t gram = 0;     // index of kGramSizes
    int64_t period = 0;  // how far back; 0: nowhere that is known
  };
  Repeat FindRepeat() const;

  std::vector<int32_t> ring_;  // the last tokens: token t at t & mask_
  int64_t mask_ = -1;
  int hash_shift_ = 0;
  int64_t size_ = 0;  // tokens in all
  // For each gram size: by Home(), how many tokens there were when such a gram
  // was last seen, the last one included (modulo 2^32).
  std::array<std::vector<uint32_t>, kGramSizes.size()> ends_;
  std::array<uint32_t, kGramSizes.size()> last_ends_ = {};  // before the last

  // How often a guess from each gram size was right lately, in [0, 1].
  std::array<float, kGramSizes.size()> chances_;
  int64_t resume_at_ = 0;  // of size_
  std::vector<int32_t> run_;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_DRAFTER_H_
