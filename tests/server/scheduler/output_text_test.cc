#include "server/scheduler/output_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "server/tokenizer/byte_tokenizer.h"

namespace flash {
namespace {

using Released = OutputText::Released;
using Stops = OutputText::Stops;
using StopText = OutputText::StopText;

constexpr Tokenizer::Place kLater = Tokenizer::Place::kLater;
const std::string kReplacement = "\xEF\xBF\xBD";

// A vocabulary of any pieces.
class PieceTokenizer final : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces)
      : pieces_(std::move(pieces)) {}
  bool has_text() const override { return true; }
  int num_pieces() const override { return static_cast<int>(pieces_.size()); }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view,
                                              Place) const override {
    return absl::UnimplementedError("not needed");
  }
  std::string Piece(int32_t id, Place) const override { return pieces_[id]; }

 private:
  const std::vector<std::string> pieces_;
};

OutputText Output(const Tokenizer& tokenizer,
                  const std::vector<std::string>& stops,
                  StopText stop_text = StopText::kDropped) {
  return OutputText(tokenizer, {kLater}, std::make_shared<StopStrings>(stops),
                    stop_text);
}

TEST(OutputText, ReleasesTextAtOnceWithoutStopStrings) {
  const PieceTokenizer tokenizer({"Hello", " world"});
  OutputText output(tokenizer, {kLater}, nullptr, StopText::kDropped);
  EXPECT_EQ(output.Push(0, Stops::kMatch).text, "Hello");
  const Released second = output.Push(1, Stops::kMatch);
  EXPECT_EQ(second.text, " world");
  EXPECT_EQ(second.offset, 5);
  EXPECT_EQ(output.Finish().text, "");
}

TEST(OutputText, HoldsBackOnlyWhatMayBecomeAStopString) {
  const PieceTokenizer tokenizer({"one s", "to", "ne"});
  OutputText output = Output(tokenizer, {"stop"});
  EXPECT_EQ(output.Push(0, Stops::kMatch).text, "one ");
  EXPECT_EQ(output.Push(1, Stops::kMatch).text, "");
  const Released third = output.Push(2, Stops::kMatch);
  EXPECT_EQ(third.text, "stone");
  EXPECT_EQ(third.offset, 4);
}

TEST(OutputText, StopsAtAStopStringAcrossTokens) {
  const PieceTokenizer tokenizer({"one s", "to", "p it"});
  OutputText output = Output(tokenizer, {"never", "stop"});
  output.Push(0, Stops::kMatch);
  EXPECT_FALSE(output.Push(1, Stops::kMatch).stop);
  const Released last = output.Push(2, Stops::kMatch);
  EXPECT_EQ(last.stop, 1);
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(output.size(), 4);
  EXPECT_EQ(output.Finish().text, "");
}

TEST(OutputText, KeepsTheStopStringAndNothingAfterItOnRequest) {
  const PieceTokenizer tokenizer({"one s", "to", "p it"});
  OutputText output = Output(tokenizer, {"stop"}, StopText::kKept);
  output.Push(0, Stops::kMatch);
  output.Push(1, Stops::kMatch);
  const Released last = output.Push(2, Stops::kMatch);
  EXPECT_EQ(last.stop, 0);
  EXPECT_EQ(last.text, "stop");
  EXPECT_EQ(last.offset, 4);
}

TEST(OutputText, ReleasesTheTextBeforeAStopStringInTheSameToken) {
  const PieceTokenizer tokenizer({"say stop now"});
  OutputText output = Output(tokenizer, {"stop"});
  const Released only = output.Push(0, Stops::kMatch);
  EXPECT_EQ(only.text, "say ");
  EXPECT_EQ(only.stop, 0);
}

TEST(OutputText, LosesNothingWhenItFinishesWithoutAStopString) {
  const PieceTokenizer tokenizer({"one sto", "\xE4\xB8"});
  OutputText output = Output(tokenizer, {"stop"});
  output.Push(0, Stops::kMatch);
  output.Push(1, Stops::kMatch);
  const Released rest = output.Finish();
  EXPECT_EQ(rest.text, "sto" + kReplacement);
  EXPECT_EQ(rest.offset, 4);
  EXPECT_EQ(output.Finish().text, "");
}

TEST(OutputText, PassesOverStopStringsThatAreCompleteTooEarly) {
  const PieceTokenizer tokenizer({"a", "b"});
  OutputText output = Output(tokenizer, {"ab", "ba"});
  EXPECT_EQ(output.Push(0, Stops::kPassOver).text, "");
  // "ab" is text now, but its "b" may begin "ba".
  const Released second = output.Push(1, Stops::kPassOver);
  EXPECT_EQ(second.text, "a");
  EXPECT_FALSE(second.stop);
  const Released third = output.Push(0, Stops::kMatch);
  EXPECT_EQ(third.stop, 1);
  EXPECT_EQ(third.text, "");
}

TEST(OutputText, NeverSplitsACharacter) {
  const ByteTokenizer tokenizer;
  // The stop string shares its first byte with what comes.
  OutputText output = Output(tokenizer, {"\xC3\xA9!"});
  EXPECT_EQ(output.Push(0xC3, Stops::kMatch).text, "");
  EXPECT_EQ(output.Push(0xA9, Stops::kMatch).text, "");
  EXPECT_EQ(output.Push('?', Stops::kMatch).text, "\xC3\xA9?");
}

TEST(OutputText, GivesThePieceOfAnIdInItsPlace) {
  const ByteTokenizer tokenizer;
  const OutputText output = Output(tokenizer, {});
  EXPECT_EQ(output.Piece('x'), "x");
  EXPECT_EQ(output.Piece(0xC3), "\xC3");
}

// --- Against the definition, over complete texts ---

struct Whole {
  std::string text;
  int stop = -1;
  size_t num_tokens = 0;  // those that were needed
};

// `texts`: the whole text after each token (of all ids before).
Whole NaiveOutput(const std::vector<std::string>& texts, size_t min_tokens,
                  const std::vector<std::string>& stops, StopText stop_text) {
  for (size_t token = min_tokens; token < texts.size(); ++token) {
    const size_t before = token == 0 ? 0 : texts[token - 1].size();
    for (size_t end = before + 1; end <= texts[token].size(); ++end) {
      const std::string_view text(texts[token].data(), end);
      int best = -1;
      for (size_t i = 0; i < stops.size(); ++i) {
        if (!text.ends_with(stops[i])) continue;
        if (best < 0 || stops[i].size() > stops[best].size()) {
          best = static_cast<int>(i);
        }
      }
      if (best < 0) continue;
      const size_t cut = stop_text == StopText::kKept ? 0 : stops[best].size();
      return {std::string(text.substr(0, end - cut)), best, token + 1};
    }
  }
  return {"", -1, texts.size()};
}

// Bytes at the end of `text` that begin some stop string.
size_t NaiveHeld(const std::string& text,
                 const std::vector<std::string>& stops) {
  size_t held = 0;
  for (const std::string& stop : stops) {
    for (size_t size = 1; size < stop.size(); ++size) {
      if (text.ends_with(stop.substr(0, size))) held = std::max(held, size);
    }
  }
  return held;
}

struct Scene {
  std::vector<int32_t> ids;
  std::vector<std::string> stops;
  size_t min_tokens = 0;
  StopText stop_text = StopText::kDropped;
};

const PieceTokenizer& SmallAlphabet() {
  static const auto* const tokenizer = new PieceTokenizer(
      {"a", "b", "ab", "bab", "", "\xC3", "\xA9", "\xC3\xA9", "a\xC3",
       "\xA9"
       "b",
       "\xF0\x9F", "\x98\x80", "\xFF",
       "aab\xC3\xA9"
       "ba"});
  return *tokenizer;
}

Scene RandomScene(std::mt19937& random) {
  const std::string parts[] = {"a", "b", "\xC3\xA9", "\xF0\x9F\x98\x80",
                               kReplacement};
  Scene scene;
  scene.ids.resize(random() % 12);
  for (int32_t& id : scene.ids) {
    id = static_cast<int32_t>(random() % SmallAlphabet().num_pieces());
  }
  scene.stops.resize(random() % 4);
  for (std::string& stop : scene.stops) {
    const size_t size = random() % 4 + 1;
    for (size_t i = 0; i < size; ++i) stop += parts[random() % 5];
  }
  scene.min_tokens = random() % 3 == 0 ? random() % 8 : 0;
  scene.stop_text = random() % 2 == 0 ? StopText::kDropped : StopText::kKept;
  return scene;
}

Stops StopsAt(const Scene& scene, size_t token) {
  return token < scene.min_tokens ? Stops::kPassOver : Stops::kMatch;
}

// The text after each token, and at last with the flush.
std::vector<std::string> WholeTexts(const Scene& scene) {
  Detokenizer detokenizer(SmallAlphabet(), kLater);
  std::vector<std::string> texts;
  std::string text;
  for (const int32_t id : scene.ids) {
    text += detokenizer.Push(id);
    texts.push_back(text);
  }
  texts.push_back(text + detokenizer.Flush());
  return texts;
}

// Streams the scene and compares it with `expected`, step by step.
void CheckStream(const Scene& scene) {
  std::vector<std::string> texts = WholeTexts(scene);
  const std::string flushed = texts.back();
  texts.pop_back();
  Whole expected =
      NaiveOutput(texts, scene.min_tokens, scene.stops, scene.stop_text);
  if (expected.stop < 0) expected.text = flushed;

  OutputText output = Output(SmallAlphabet(), scene.stops, scene.stop_text);
  std::string text;
  for (size_t token = 0; token < expected.num_tokens; ++token) {
    const Released released =
        output.Push(scene.ids[token], StopsAt(scene, token));
    ASSERT_EQ(released.offset, static_cast<int64_t>(text.size()));
    ASSERT_TRUE(IsValidUtf8(released.text));
    text += released.text;
    ASSERT_TRUE(expected.text.starts_with(text)) << "taken back";
    const bool is_last = token + 1 == expected.num_tokens;
    if (is_last && expected.stop >= 0) {
      ASSERT_EQ(released.stop, expected.stop);
    } else {
      ASSERT_FALSE(released.stop);
      ASSERT_EQ(text.size(),
                texts[token].size() - NaiveHeld(texts[token], scene.stops))
          << "held back too much or too little";
    }
  }
  text += output.Finish().text;
  ASSERT_EQ(text, expected.text);
  ASSERT_EQ(output.size(), static_cast<int64_t>(text.size()));
}

TEST(OutputText, StreamsWhatTheWholeTextSays) {
  std::mt19937 random(10);
  for (int round = 0; round < 30000; ++round) {
    CheckStream(RandomScene(random));
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

TEST(OutputText, GoesOnAfterPriorIdsAsIfItHadStreamedThem) {
  std::mt19937 random(12);
  for (int round = 0; round < 3000; ++round) {
    const Scene scene = RandomScene(random);
    OutputText whole = Output(SmallAlphabet(), scene.stops, scene.stop_text);
    bool over = false;
    for (size_t token = 0; token < scene.ids.size() && !over; ++token) {
      OutputText continued =
          Output(SmallAlphabet(), scene.stops, scene.stop_text);
      for (size_t prior = 0; prior < token; ++prior) {
        continued.Push(scene.ids[prior], StopsAt(scene, prior));
      }
      const Stops stops = StopsAt(scene, token);
      const Released expected = whole.Push(scene.ids[token], stops);
      const Released released = continued.Push(scene.ids[token], stops);
      ASSERT_EQ(released.text, expected.text);
      ASSERT_EQ(released.offset, expected.offset);
      ASSERT_EQ(released.stop, expected.stop);
      over = expected.stop.has_value();
    }
  }
}

TEST(OutputText, GoesOnIndependentlyInACopy) {
  const ByteTokenizer tokenizer;
  OutputText output = Output(tokenizer, {"abc"});
  output.Push('a', Stops::kMatch);
  OutputText copy = output;
  EXPECT_EQ(copy.Push('x', Stops::kMatch).text, "ax");
  output.Push('b', Stops::kMatch);
  EXPECT_EQ(output.Push('c', Stops::kMatch).stop, 0);
}

}  // namespace
}  // namespace flash
