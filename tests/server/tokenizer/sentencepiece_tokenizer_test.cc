#include "server/tokenizer/sentencepiece_tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "server/tokenizer/detokenizer.h"

namespace flash {
namespace {

constexpr Tokenizer::Place kFirst = Tokenizer::Place::kFirst;
constexpr Tokenizer::Place kLater = Tokenizer::Place::kLater;

std::string FileBytes(const std::string& name) {
  std::ifstream file(
      FLASH_SOURCE_DIR "/tests/server/tokenizer/testdata/" + name,
      std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::unique_ptr<SentencePieceTokenizer> Load(const std::string& name) {
  auto tokenizer = SentencePieceTokenizer::Create(FileBytes(name));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return std::move(*tokenizer);
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text,
                         Tokenizer::Place place = kFirst) {
  const auto ids = tokenizer.Encode(text, place);
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  return *ids;
}

const std::string kTexts[] = {
    "",
    "a",
    " a",
    "  two  spaces  ",
    "In the beginning God created the heaven and the earth.",
    "line\nbreak\ttab",
    "caf\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87 \xF0\x9F\x98\x80!",
    std::string("nul\0inside", 10),
    "<s></s><unk><0x41>",
    "<|note|>x",
    "0123456789",
};

TEST(SentencePieceTokenizer, GivesBackEveryText) {
  for (const char* model : {"plain.model", "prefix.model"}) {
    const auto tokenizer = Load(model);
    for (const std::string& text : kTexts) {
      EXPECT_EQ(Decode(*tokenizer, Ids(*tokenizer, text)), text) << model;
    }
  }
}

// A model that differs from `name` in what the fields of `more`, a ModelProto's
// bytes, say: of a field that comes twice the last one counts.
std::unique_ptr<SentencePieceTokenizer> LoadWith(const std::string& name,
                                                 std::string_view more) {
  auto tokenizer = SentencePieceTokenizer::Create(FileBytes(name).append(more));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return std::move(*tokenizer);
}

// Encodes `text` in two parts, cut at every place between two characters.
void ExpectPartsAddUp(const Tokenizer& tokenizer, const std::string& text) {
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    if (!IsValidUtf8(text.substr(0, cut))) continue;
    std::vector<int32_t> ids = Ids(tokenizer, text.substr(0, cut), kFirst);
    const std::vector<int32_t> more =
        Ids(tokenizer, text.substr(cut), PlaceAfter(tokenizer, ids));
    ids.insert(ids.end(), more.begin(), more.end());
    EXPECT_EQ(Decode(tokenizer, ids), text) << "cut at " << cut;
  }
}

TEST(SentencePieceTokenizer, GivesTextInPartsWhoseSumIsTheText) {
  for (const char* model : {"plain.model", "prefix.model"}) {
    const auto tokenizer = Load(model);
    for (const std::string& text : kTexts) {
      ExpectPartsAddUp(*tokenizer, text);
    }
  }
}

TEST(SentencePieceTokenizer, PutsNothingBeforeATextThatGoesOnAnother) {
  const auto prefix = Load("prefix.model");
  std::string text;
  for (const int32_t id : Ids(*prefix, "the", kLater)) {
    text += prefix->Piece(id, kLater);
  }
  EXPECT_EQ(text, "the");
  EXPECT_EQ(Ids(*prefix, " the", kLater), Ids(*prefix, "the", kFirst));
  const auto plain = Load("plain.model");
  for (const std::string& whole : kTexts) {
    EXPECT_EQ(Ids(*plain, whole, kLater), Ids(*plain, whole, kFirst));
  }
}

// normalizer_spec { remove_extra_whitespaces: true }
TEST(SentencePieceTokenizer, KeepsTheSpacesOfATextThatGoesOnAnother) {
  const auto tokenizer = LoadWith("prefix.model", "\x1A\x02\x20\x01");
  EXPECT_EQ(Decode(*tokenizer, Ids(*tokenizer, " a  b ")), "a b");
  std::vector<int32_t> ids = Ids(*tokenizer, "a");
  for (const int32_t id : Ids(*tokenizer, "  b ", kLater)) ids.push_back(id);
  EXPECT_EQ(Decode(*tokenizer, ids), "a  b ");
}

// self_test_data { samples { input: "the" expected: "\u2581the" } }
TEST(SentencePieceTokenizer, LoadsAModelThatHasSamplesOfItsPieces) {
  const auto tokenizer = LoadWith(
      "prefix.model", "\x22\x0F\x0A\x0D\x0A\x03the\x12\x06\xE2\x96\x81the");
  EXPECT_EQ(Ids(*tokenizer, " the", kLater), Ids(*tokenizer, "the", kFirst));
  ExpectPartsAddUp(*tokenizer, "the end");
}

TEST(SentencePieceTokenizer, KnowsWhetherTheModelAddsADummyPrefix) {
  EXPECT_FALSE(Load("plain.model")->adds_dummy_prefix());
  EXPECT_TRUE(Load("prefix.model")->adds_dummy_prefix());
}

TEST(SentencePieceTokenizer, DropsOneSpaceAtTheBeginningWithADummyPrefixOnly) {
  const auto plain = Load("plain.model");
  const std::vector<int32_t> spaced = Ids(*plain, " the");
  ASSERT_EQ(spaced.size(), 1);
  EXPECT_EQ(plain->Piece(spaced[0], kFirst), " the");
  EXPECT_EQ(plain->Piece(spaced[0], kLater), " the");

  const auto prefix = Load("prefix.model");
  const std::vector<int32_t> ids = Ids(*prefix, "the");
  ASSERT_EQ(ids.size(), 1);
  EXPECT_EQ(prefix->Piece(ids[0], kFirst), "the");
  EXPECT_EQ(prefix->Piece(ids[0], kLater), " the");
}

TEST(SentencePieceTokenizer, GivesByteFallbackPiecesAsTheirByte) {
  const auto tokenizer = Load("prefix.model");
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    EXPECT_EQ(tokenizer->Piece(4 + byte, kLater), text);
    EXPECT_EQ(tokenizer->Piece(4 + byte, kFirst), text);  // a space, too
  }
}

TEST(SentencePieceTokenizer, GivesControlPiecesNoTextAndTheUnknownOneASign) {
  const auto tokenizer = Load("prefix.model");
  EXPECT_EQ(tokenizer->Piece(1, kLater), "");
  EXPECT_EQ(tokenizer->Piece(2, kLater), "");
  EXPECT_EQ(tokenizer->Piece(0, kLater), " \xE2\x81\x87 ");
  EXPECT_EQ(tokenizer->Piece(0, kFirst), " \xE2\x81\x87 ");
  EXPECT_EQ(tokenizer->Piece(3, kLater), "<|note|>");
}

TEST(SentencePieceTokenizer, HasNoPieceOutsideItsRange) {
  const auto tokenizer = Load("plain.model");
  EXPECT_EQ(tokenizer->Piece(-1, kLater), "");
  EXPECT_EQ(tokenizer->Piece(512, kLater), "");
}

TEST(SentencePieceTokenizer, NeverMakesControlPiecesOfText) {
  const auto tokenizer = Load("plain.model");
  for (const int32_t id : Ids(*tokenizer, "<s>a</s>")) EXPECT_GT(id, 2);
}

TEST(SentencePieceTokenizer, TellsBosAndEos) {
  const auto tokenizer = Load("plain.model");
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
}

TEST(SentencePieceTokenizer, RefusesWhatIsNotUtf8) {
  const auto tokenizer = Load("plain.model");
  for (const char* text : {"\xFF", "a\xC3", "\xED\xA0\x80", "\xC0\x80"}) {
    EXPECT_EQ(tokenizer->Encode(text, kFirst).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(SentencePieceTokenizer, RefusesATruncatedModel) {
  const std::string bytes = FileBytes("plain.model");
  const auto tokenizer =
      SentencePieceTokenizer::Create(bytes.substr(0, bytes.size() / 2 + 1));
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
}

// The library decodes ids at once; the detokenizer must agree with it wherever
// the bytes are valid UTF-8 (elsewhere the library replaces every single byte).
TEST(SentencePieceTokenizer, DecodesAnyIdsAsTheLibraryDoes) {
  for (const char* model : {"plain.model", "prefix.model"}) {
    const auto tokenizer = Load(model);
    std::string error;
    const auto library = SentencePieceLibrary::Load(FileBytes(model), error);
    std::mt19937 random(7);
    for (int round = 0; round < 5000; ++round) {
      std::vector<int32_t> ids(random() % 6);
      // All but the bytes of no ASCII character.
      for (int32_t& id : ids) {
        do {
          id = static_cast<int32_t>(random() % 512);
        } while (id >= 4 + 0x80 && id < 4 + 0x100);
      }
      EXPECT_EQ(Decode(*tokenizer, ids), library->Decode(ids))
          << model << " " << ::testing::PrintToString(ids);
    }
  }
}

}  // namespace
}  // namespace flash
