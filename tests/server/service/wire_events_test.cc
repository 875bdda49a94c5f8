#include "server/service/wire_events.h"

#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(WireEventsTest, CutsALongPromptBetweenCharacters) {
  PromptOutput prompt;
  for (int i = 0; i < 5; ++i) prompt.text += 'x';
  while (prompt.text.size() < (size_t{3} << 20)) prompt.text += "\xe2\x82\xac";
  prompt.tokens.resize(5000);
  for (int i = 0; i < 5000; ++i) prompt.tokens[i].id = i;
  const std::string whole = prompt.text;
  const auto parts = ToWireParts(std::move(prompt));
  std::string text;
  uint64_t next = 0;
  for (const auto& part : parts) {
    EXPECT_EQ(part.first_token_index(), next);
    for (const auto& token : part.tokens()) EXPECT_EQ(token.id(), next++);
    // A part that began within a character would begin with 10xxxxxx.
    if (!part.text().empty()) {
      EXPECT_NE(part.text()[0] & 0xc0, 0x80);
    }
    EXPECT_LT(part.ByteSizeLong(), size_t{2} << 20);
    text += part.text();
  }
  EXPECT_EQ(next, 5000u);
  EXPECT_EQ(text, whole);
}

TEST(WireEventsTest, MakesOnePartOfAnEmptyPrompt) {
  EXPECT_EQ(ToWireParts({}).size(), 1u);
}

TEST(WireEventsTest, SaysWhatStoppedAnOutput) {
  Finished finished;
  finished.reason = FinishReason::kStopString;
  finished.stop_string = "end";
  EXPECT_EQ(ToWire(finished, std::nullopt).stop().text(), "end");
  finished.reason = FinishReason::kStopToken;
  finished.stop_token_id = 7;
  EXPECT_EQ(ToWire(finished, std::nullopt).stop().token_id(), 7u);
  finished.reason = FinishReason::kMaxTokens;
  EXPECT_FALSE(ToWire(finished, std::nullopt).has_stop());
}

TEST(WireEventsTest, TellsALogprobOnlyIfThereIsOne) {
  TokenInfo token;
  EXPECT_FALSE(ToWire(token).has_logprob());
  token.logprob = -1.5f;
  token.rank = 2;
  EXPECT_EQ(ToWire(token).logprob(), -1.5f);
  EXPECT_EQ(ToWire(token).rank(), 2u);
}

}  // namespace
}  // namespace flash
