// Finds a request's stop strings in text that comes in parts.

#ifndef SERVER_SCHEDULER_STOP_STRINGS_H_
#define SERVER_SCHEDULER_STOP_STRINGS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flash {

// The strings, prepared for searching (Knuth-Morris-Pratt, one automaton for
// each string: a request has at most 16 of 256 bytes).
//
// Thread safety: immutable; any thread. Shared by the outputs of a request.
class StopStrings {
 public:
  // Strings may be equal or parts of each other. An empty one never matches.
  explicit StopStrings(std::span<const std::string> strings);

  const std::string& string(int index) const { return patterns_[index].string; }
  int size() const { return static_cast<int>(patterns_.size()); }

 private:
  friend class StopSearch;
  struct Pattern {
    std::string string;
    // border[n]: length of the longest proper prefix of the string's first n
    // bytes that is also their suffix.
    std::vector<int32_t> border;
  };
  std::vector<Pattern> patterns_;
};

// One search through one text. Where several strings are complete, the one that
// is complete first wins; of those that end at the same byte, the longest (the
// one that began first); of equal ones, the lowest index.
//
// Thread safety: one thread at a time. A copy goes on independently.
class StopSearch {
 public:
  // `strings` is borrowed.
  explicit StopSearch(const StopStrings& strings);

  struct Match {
    int index = 0;   // which string
    size_t end = 0;  // bytes of the `text` of this call up to the match's end
  };

  // Goes on with `text` up to the first match's end, or through all of it.
  std::optional<Match> FindIn(std::string_view text);

  // Goes on with all of `text`, passing over what matches in it. (A string that
  // overlaps one that was passed over can still match.)
  void PassOver(std::string_view text);

  // Bytes at the end of the text so far that may be the beginning of a match:
  // fewer than the longest string has.
  size_t num_held() const;

 private:
  // Takes one byte; the match that ends with it.
  std::optional<int> Take(char byte);

  const StopStrings* strings_;
  std::vector<int32_t> matched_;  // for each string: bytes of it at the end
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_STOP_STRINGS_H_
