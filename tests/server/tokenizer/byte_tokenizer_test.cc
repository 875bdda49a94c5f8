#include "server/tokenizer/byte_tokenizer.h"

#include <gtest/gtest.h>

namespace flash {
namespace {

TEST(ByteTokenizer, GivesTheBytesOfATextAndTheTextOfBytes) {
  ByteTokenizer tokenizer;
  const std::string text("a\0\xC3\xA9\xFF", 5);
  const auto ids = tokenizer.Encode(text, Tokenizer::Place::kFirst);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (std::vector<int32_t>{'a', 0, 0xC3, 0xA9, 0xFF}));
  std::string back;
  for (const int32_t id : *ids) {
    back += tokenizer.Piece(id, Tokenizer::Place::kLater);
  }
  EXPECT_EQ(back, text);
}

TEST(ByteTokenizer, HasNoPieceOutsideTheBytes) {
  ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.num_pieces(), 256);
  EXPECT_EQ(tokenizer.Piece(256, Tokenizer::Place::kLater), "");
  EXPECT_EQ(tokenizer.Piece(-1, Tokenizer::Place::kLater), "");
}

TEST(ByteTokenizer, KeepsASpaceAtTheBeginning) {
  ByteTokenizer tokenizer;
  EXPECT_FALSE(tokenizer.adds_dummy_prefix());
  EXPECT_EQ(tokenizer.Piece(' ', Tokenizer::Place::kFirst), " ");
}

TEST(ByteTokenizer, GivesNoIdsForAnEmptyText) {
  const auto ids = ByteTokenizer().Encode("", Tokenizer::Place::kFirst);
  ASSERT_TRUE(ids.ok());
  EXPECT_TRUE(ids->empty());
}

}  // namespace
}  // namespace flash
