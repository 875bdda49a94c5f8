#include "server/scheduler/rewind.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/tokenizer/byte_tokenizer.h"

namespace flash {
namespace {

constexpr auto kLater = Tokenizer::Place::kLater;

// Ids with pieces that a test writes down.
class WordTokenizer final : public Tokenizer {
 public:
  explicit WordTokenizer(std::vector<std::string> words)
      : words_(std::move(words)) {}
  bool has_text() const override { return true; }
  int num_pieces() const override { return static_cast<int>(words_.size()); }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view,
                                              Place) const override {
    return absl::UnimplementedError("");
  }
  std::string Piece(int32_t id, Place) const override { return words_[id]; }

 private:
  const std::vector<std::string> words_;
};

TEST(Rewind, CutsAtTheLastBorderBeforeTheCutAndSaysWhatIsLeftOfTheText) {
  const WordTokenizer words({"one", " two", "ST", "OP"});
  Rewind rewind(words, {kLater}, 10, {}, {});
  EXPECT_EQ(rewind.floor(), 10);
  rewind.Push(0, 3);
  EXPECT_EQ(rewind.floor(), 11);
  Rewind exact = rewind;
  exact.Push(1, 7);
  exact.Push(2, 7);
  EXPECT_EQ(exact.floor(), 12);
  const Rewind::Cut at_border = exact.CutAt(7);
  EXPECT_EQ(at_border.num_tokens, 12);
  EXPECT_EQ(at_border.text, "");
  rewind.Push(1, 5);  // "wo" may be the begin of a stop string
  EXPECT_EQ(rewind.floor(), 11);
  rewind.Push(2, 5);
  const Rewind::Cut within = rewind.CutAt(5);
  EXPECT_EQ(within.num_tokens, 11);
  EXPECT_EQ(within.text, " t");
  EXPECT_EQ(rewind.floor(), 11);
}

TEST(Rewind, CutsNoCharacterInTwo) {
  const ByteTokenizer bytes;
  Rewind rewind(bytes, {kLater}, 0, {}, {});
  rewind.Push('a', 1);
  rewind.Push(0xC3, 1);
  EXPECT_EQ(rewind.floor(), 1);
  rewind.Push(0xA9, 1);
  EXPECT_EQ(rewind.floor(), 1);
  EXPECT_EQ(rewind.CutAt(1).num_tokens, 1);
}

TEST(Rewind, KeepsWhatAddsNoTextBeforeAStopString) {
  const WordTokenizer words({"a", "", "ST"});
  Rewind rewind(words, {kLater}, 0, {}, {});
  rewind.Push(0, 1);
  rewind.Push(1, 1);
  rewind.Push(2, 1);
  EXPECT_EQ(rewind.CutAt(1).num_tokens, 2);
}

TEST(Rewind, WantsTheLastBoundaryThatNoCutCanFallBefore) {
  const ByteTokenizer bytes;
  Rewind rewind(bytes, {kLater}, 20, {}, {});  // after a prompt of 20
  EXPECT_FALSE(rewind.Wants(8, 8));            // 16 comes
  EXPECT_TRUE(rewind.Wants(16, 8));
  rewind.SetBase({16, nullptr});
  rewind.Push('a', 1);
  rewind.Push('b', 1);
  rewind.Push('c', 1);
  rewind.Push('d', 1);
  EXPECT_EQ(rewind.floor(), 21);
  EXPECT_FALSE(rewind.Wants(24, 8));
  rewind.Push('e', 5);
  EXPECT_TRUE(rewind.Wants(24, 8));
}

TEST(Rewind, FindsWhatIsHeldBackInThePendingTokens) {
  const ByteTokenizer bytes;
  // "éST" was read from within the é on; "ST" is held back, and half an é.
  const std::vector<int32_t> pending = {0xA9, 'S', 'T', 0xC3};
  Rewind rewind(bytes, {kLater, "\xC3", "ST"}, 20, pending, {16, nullptr});
  EXPECT_EQ(rewind.floor(), 17);
  rewind.Push(0xA9, 0);
  const Rewind::Cut cut = rewind.CutAt(0);
  EXPECT_EQ(cut.num_tokens, 17);
  EXPECT_EQ(cut.text, "");
}

TEST(Rewind, GoesBackAsFarAsThereAreTokensIfTheyDoNotReach) {
  const ByteTokenizer bytes;
  const std::vector<int32_t> pending = {'O'};
  Rewind rewind(bytes, {kLater, "", "STO"}, 20, pending, {19, nullptr});
  EXPECT_EQ(rewind.floor(), 19);
  rewind.Push('P', 0);
  EXPECT_EQ(rewind.CutAt(0).num_tokens, 19);
}

}  // namespace
}  // namespace flash
