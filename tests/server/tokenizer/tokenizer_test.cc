#include "server/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

namespace flash {
namespace {

using ::testing::HasSubstr;

const char kTestData[] = FLASH_SOURCE_DIR "/tests/server/tokenizer/testdata";

TokenizerConfig SentencePiece(const std::string& file) {
  return {TokenizerConfig::Type::kSentencePiece, file};
}

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

TEST(MakeTokenizer, MakesEachType) {
  const auto pieces =
      MakeTokenizer(SentencePiece("plain.model"), kTestData, 512);
  ASSERT_TRUE(pieces.ok()) << pieces.status().ToString();
  EXPECT_EQ((*pieces)->num_pieces(), 512);
  const auto bytes =
      MakeTokenizer({TokenizerConfig::Type::kBytes, ""}, kTestData, 256);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ((*bytes)->num_pieces(), 256);
  const auto none =
      MakeTokenizer({TokenizerConfig::Type::kNone, ""}, kTestData, 97);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE((*none)->has_text());
}

TEST(MakeTokenizer, AcceptsAPaddedVocabulary) {
  const auto pieces =
      MakeTokenizer(SentencePiece("plain.model"), kTestData, 640);
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ((*pieces)->num_pieces(), 512);
  EXPECT_EQ((*pieces)->Piece(512, Tokenizer::Place::kLater), "");
}

TEST(MakeTokenizer, RefusesMorePiecesThanTheVocabularyHas) {
  const auto pieces =
      MakeTokenizer(SentencePiece("plain.model"), kTestData, 511);
  EXPECT_EQ(pieces.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(pieces.status()), HasSubstr("plain.model"));
  EXPECT_THAT(MessageOf(pieces.status()), HasSubstr("512"));
  EXPECT_THAT(MessageOf(pieces.status()), HasSubstr("511"));
  const auto bytes =
      MakeTokenizer({TokenizerConfig::Type::kBytes, ""}, kTestData, 255);
  EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TokenizerDigest, TellsTokenizersApart) {
  std::set<std::string> digests;
  for (const TokenizerConfig& config :
       {SentencePiece("plain.model"), SentencePiece("prefix.model"),
        TokenizerConfig{TokenizerConfig::Type::kBytes, ""},
        TokenizerConfig{TokenizerConfig::Type::kNone, ""}}) {
    const auto digest = TokenizerDigest(config, kTestData);
    ASSERT_TRUE(digest.ok()) << digest.status().ToString();
    EXPECT_EQ(digest->size(), 32u);
    EXPECT_EQ(*TokenizerDigest(config, kTestData), *digest);
    digests.insert(*digest);
  }
  EXPECT_EQ(digests.size(), 4u);
  EXPECT_EQ(
      TokenizerDigest(SentencePiece("none.model"), kTestData).status().code(),
      absl::StatusCode::kNotFound);
}

TEST(MakeTokenizer, NamesAFileThatIsNotThere) {
  const auto missing =
      MakeTokenizer(SentencePiece("none.model"), kTestData, 512);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(missing.status()), HasSubstr("none.model"));
  const auto folder = MakeTokenizer(SentencePiece("."), kTestData, 512);
  EXPECT_EQ(folder.status().code(), absl::StatusCode::kNotFound);
}

TEST(MakeTokenizer, NamesAFileThatIsNoTokenizer) {
  const std::string folder = ::testing::TempDir();
  std::ofstream(folder + "/broken.model") << "not a protocol buffer";
  std::ofstream(folder + "/empty.model");
  for (const char* name : {"broken.model", "empty.model"}) {
    const auto broken = MakeTokenizer(SentencePiece(name), folder, 512);
    EXPECT_EQ(broken.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(broken.status()), HasSubstr(name));
  }
}

}  // namespace
}  // namespace flash
