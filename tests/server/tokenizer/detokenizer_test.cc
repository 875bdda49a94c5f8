#include "server/tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "server/tokenizer/byte_tokenizer.h"

namespace flash {
namespace {

constexpr Tokenizer::Place kFirst = Tokenizer::Place::kFirst;
constexpr Tokenizer::Place kLater = Tokenizer::Place::kLater;
const std::string kReplacement = "\xEF\xBF\xBD";

std::string Utf8Of(uint32_t point) {
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) {
    return {static_cast<char>(0xC0 | point >> 6),
            static_cast<char>(0x80 | (point & 63))};
  }
  if (point < 0x10000) {
    return {static_cast<char>(0xE0 | point >> 12),
            static_cast<char>(0x80 | (point >> 6 & 63)),
            static_cast<char>(0x80 | (point & 63))};
  }
  return {static_cast<char>(0xF0 | point >> 18),
          static_cast<char>(0x80 | (point >> 12 & 63)),
          static_cast<char>(0x80 | (point >> 6 & 63)),
          static_cast<char>(0x80 | (point & 63))};
}

// Every character there is, sorted by its bytes.
const std::vector<std::string>& AllCharacters() {
  static const auto* const all = [] {
    auto* characters = new std::vector<std::string>;
    for (uint32_t point = 0; point < 0x110000; ++point) {
      if (point < 0xD800 || point > 0xDFFF) {
        characters->push_back(Utf8Of(point));
      }
    }
    std::sort(characters->begin(), characters->end());
    return characters;
  }();
  return *all;
}

bool BeginsACharacter(const std::string& bytes) {
  const auto& all = AllCharacters();
  const auto at = std::lower_bound(all.begin(), all.end(), bytes);
  return at != all.end() && at->starts_with(bytes);
}
bool IsACharacter(const std::string& bytes) {
  const auto& all = AllCharacters();
  return std::binary_search(all.begin(), all.end(), bytes);
}

// From the definition: the longest part that begins some character is either
// that character or one U+FFFD; a byte that begins none is one U+FFFD.
std::string OracleDecode(const std::string& bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    size_t size = 1;
    while (size < 4 && at + size < bytes.size() &&
           BeginsACharacter(bytes.substr(at, size + 1))) {
      ++size;
    }
    const std::string part = bytes.substr(at, size);
    text += IsACharacter(part) ? part : kReplacement;
    at += size;
  }
  return text;
}

std::string DecodeBytes(const std::string& bytes) {
  std::vector<int32_t> ids;
  for (const char c : bytes) ids.push_back(static_cast<unsigned char>(c));
  return Decode(ByteTokenizer(), ids);
}

std::string Replaced(int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += kReplacement;
  return text;
}

TEST(Detokenizer, HoldsBackAnIncompleteCharacter) {
  const ByteTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer, kFirst);
  EXPECT_EQ(detokenizer.Push('a'), "a");
  EXPECT_EQ(detokenizer.Push(0xF0), "");
  EXPECT_EQ(detokenizer.Push(0x9F), "");
  EXPECT_EQ(detokenizer.Push(0x98), "");
  EXPECT_EQ(detokenizer.Push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(Detokenizer, ReplacesWhatWasLeftIncompleteAtTheEnd) {
  const ByteTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer, kFirst);
  detokenizer.Push(0xF0);
  detokenizer.Push(0x9F);
  EXPECT_EQ(detokenizer.Flush(), kReplacement);
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(Detokenizer, ReplacesAsSoonAsNoCharacterIsPossible) {
  const ByteTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer, kFirst);
  EXPECT_EQ(detokenizer.Push(0xFF), kReplacement);
  detokenizer.Push(0xE4);
  EXPECT_EQ(detokenizer.Push('a'), kReplacement + "a");
  detokenizer.Push(0xE4);
  EXPECT_EQ(detokenizer.Push(0xC3), kReplacement);
  EXPECT_EQ(detokenizer.Push(0xA9), "\xC3\xA9");
}

// Tables 3-8 to 3-11 of the Unicode standard, version 15.
TEST(Detokenizer, ReplacesMaximalSubpartsAsTheStandardShows) {
  EXPECT_EQ(DecodeBytes("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + Replaced(3) + "b" + Replaced(1) + "c" + Replaced(2) + "d");
  EXPECT_EQ(DecodeBytes("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            Replaced(8) + "A");
  EXPECT_EQ(DecodeBytes("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            Replaced(8) + "A");
  EXPECT_EQ(DecodeBytes("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            Replaced(5) + "A" + Replaced(2) + "B");
  EXPECT_EQ(DecodeBytes("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"),
            Replaced(4) + "A");
}

TEST(Detokenizer, KeepsEveryCharacterThereIs) {
  std::string all;
  for (const std::string& character : AllCharacters()) all += character;
  EXPECT_TRUE(IsValidUtf8(all));
  EXPECT_EQ(DecodeBytes(all), all);
}

TEST(Detokenizer, DecodesRandomBytesByTheDefinition) {
  const std::string alphabet =
      "a\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5";
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 9, ' ');
    for (char& byte : bytes) byte = alphabet[random() % alphabet.size()];
    const std::string expected = OracleDecode(bytes);
    ASSERT_EQ(DecodeBytes(bytes), expected);
    ASSERT_EQ(IsValidUtf8(bytes), bytes == expected);
    ASSERT_TRUE(IsValidUtf8(expected));
  }
}

TEST(Utf8Assembler, GivesTheSameHoweverTheBytesAreCut) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 20, ' ');
    for (char& byte : bytes) byte = static_cast<char>(random());
    Utf8Assembler assembler;
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = random() % 5;
      std::string delta;
      assembler.Push(bytes.substr(at, size), delta);
      ASSERT_TRUE(IsValidUtf8(delta));
      text += delta;
      at += size;
    }
    assembler.Flush(text);
    ASSERT_EQ(text, DecodeBytes(bytes));
  }
}

// "_x" is x with a dummy prefix; id 0 is a control token.
class PrefixTokenizer final : public Tokenizer {
 public:
  bool has_text() const override { return true; }
  int num_pieces() const override { return 4; }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view,
                                              Place) const override {
    return std::vector<int32_t>();
  }
  std::string Piece(int32_t id, Place place) const override {
    const std::string piece[] = {"", " a", " ", "b"};
    const bool drop = place == kFirst && piece[id].starts_with(' ');
    return drop ? piece[id].substr(1) : piece[id];
  }
};

TEST(Detokenizer, DropsTheDummyPrefixOnceAfterAnyControlTokens) {
  const PrefixTokenizer tokenizer;
  const int32_t ids[] = {0, 0, 1, 1};
  EXPECT_EQ(Decode(tokenizer, ids), "a a");
  const int32_t lone[] = {0, 2, 1, 2};
  EXPECT_EQ(Decode(tokenizer, lone), " a ");
}

TEST(Detokenizer, KeepsThePrefixWhereTextStandsBefore) {
  const PrefixTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer, kLater);
  EXPECT_EQ(detokenizer.Piece(1), " a");
  EXPECT_EQ(detokenizer.Push(1), " a");
}

TEST(PlaceAfter, IsFirstUntilAnIdAddsText) {
  const PrefixTokenizer tokenizer;
  EXPECT_EQ(PlaceAfter(tokenizer, {}), kFirst);
  EXPECT_EQ(PlaceAfter(tokenizer, std::vector<int32_t>{0, 0}), kFirst);
  EXPECT_EQ(PlaceAfter(tokenizer, std::vector<int32_t>{0, 2}), kLater);
  EXPECT_EQ(PlaceAfter(tokenizer, std::vector<int32_t>{3}), kLater);
}

TEST(IsValidUtf8, RefusesTruncatedAndForbiddenForms) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8(std::string_view("\0", 1)));
  for (const char* bytes :
       {"\x80", "\xC3", "\xE4\xB8", "\xF0\x9F\x98", "\xED\xA0\x80",
        "\xF4\x90\x80\x80", "\xC0\x80", "\xE0\x80\x80", "\xC3\x28"}) {
    EXPECT_FALSE(IsValidUtf8(bytes));
  }
}

}  // namespace
}  // namespace flash
