#include "server/command_line/standard_output.h"

#include <signal.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"

namespace flash {
namespace {

using testing::HasSubstr;

TEST(StandardOutputTest, WritesAtOnce) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::FILE* out = fdopen(ends[1], "w");
  EXPECT_TRUE(WriteOut("text", out).ok());
  char read_back[5] = {};
  EXPECT_EQ(read(ends[0], read_back, 4), 4);
  EXPECT_STREQ(read_back, "text");
  std::fclose(out);
  close(ends[0]);
}

TEST(StandardOutputTest, TellsWhatIsFull) {
  std::FILE* out = std::fopen("/dev/full", "w");
  ASSERT_NE(out, nullptr);
  EXPECT_THAT(std::string(WriteOut("text", out).message()),
              HasSubstr("cannot write to stdout: No space left"));
  std::fclose(out);
}

TEST(StandardOutputTest, TellsThatTheReaderLeft) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  std::FILE* out = fdopen(ends[1], "w");
  EXPECT_THAT(std::string(WriteOut("text", out).message()),
              HasSubstr("stdout is closed"));
  std::fclose(out);
  signal(SIGPIPE, SIG_DFL);
}

}  // namespace
}  // namespace flash
