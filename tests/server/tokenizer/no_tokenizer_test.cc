#include "server/tokenizer/no_tokenizer.h"

#include <gtest/gtest.h>

namespace flash {
namespace {

TEST(NoTokenizer, RefusesTextAndHasNone) {
  NoTokenizer tokenizer(97);
  EXPECT_FALSE(tokenizer.has_text());
  EXPECT_EQ(tokenizer.Encode("a", Tokenizer::Place::kFirst).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tokenizer.Piece(5, Tokenizer::Place::kLater), "");
}

TEST(NoTokenizer, LeavesTheWholeVocabularyToBeSampled) {
  EXPECT_EQ(NoTokenizer(97).num_pieces(), 97);
}

}  // namespace
}  // namespace flash
