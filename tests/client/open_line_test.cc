#include "client/open_line.h"

#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace flash {
namespace {

// Two ends of one file, as stdout and stderr are by 2>&1, and another file.
class OpenLineTest : public testing::Test {
 protected:
  OpenLineTest()
      : out_(std::tmpfile()),
        same_(fdopen(dup(fileno(out_)), "w")),
        other_(std::tmpfile()) {}
  ~OpenLineTest() override {
    for (std::FILE* file : {out_, same_, other_}) std::fclose(file);
  }

  // What was said to `file`.
  static std::string Said(std::FILE* file) {
    std::fflush(file);
    std::string text(16, '\0');
    text.resize(pread(fileno(file), text.data(), text.size(), 0));
    return text;
  }

  std::FILE* const out_;
  std::FILE* const same_;
  std::FILE* const other_;
};

TEST_F(OpenLineTest, IsEndedOnce) {
  OpenLine line(out_, same_);
  line.Wrote("half of a");
  line.Wrote("");
  line.End();
  line.End();
  EXPECT_EQ(Said(same_), "\n");
}

TEST_F(OpenLineTest, IsNotOpenBeforeATextAndAfterALineEnd) {
  OpenLine line(out_, same_);
  line.End();
  line.Wrote("a whole line\n");
  line.End();
  EXPECT_EQ(Said(same_), "");
}

TEST_F(OpenLineTest, IsLeftAsItIsWhereComplaintsGoElsewhere) {
  OpenLine line(out_, other_);
  line.Wrote("half of a");
  line.End();
  EXPECT_EQ(Said(out_), "");
  EXPECT_EQ(Said(other_), "");
}

}  // namespace
}  // namespace flash
