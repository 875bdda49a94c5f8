#include "server/line_writer.h"

#include <chrono>
#include <future>
#include <vector>

#include "gmock/gmock.h"

namespace flash {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(LineWriterTest, WritesWhatItTookBeforeItEnds) {
  std::vector<std::string> written;
  {
    LineWriter writer(
        10, [&written](const std::string& line) { written.push_back(line); });
    writer.TryWrite("a");
    writer.TryWrite("b");
  }
  EXPECT_THAT(written, ElementsAre("a", "b"));
}

TEST(LineWriterTest, WaitsUntilALineIsWritten) {
  std::vector<std::string> written;
  LineWriter writer(
      10, [&written](const std::string& line) { written.push_back(line); });
  writer.TryWrite("a");
  EXPECT_TRUE(writer.Write("b", std::chrono::hours(1)));
  EXPECT_THAT(written, ElementsAre("a", "b"));
}

TEST(LineWriterTest, DoesNotWaitForEverForWhoeverReads) {
  std::promise<void> gate;
  LineWriter writer(10,
                    [&gate](const std::string&) { gate.get_future().wait(); });
  EXPECT_FALSE(writer.Write("a", std::chrono::milliseconds(1)));
  gate.set_value();
}

TEST(LineWriterTest, DropsWhatItHasNoRoomForAndSaysSo) {
  std::promise<void> started;
  std::promise<void> gate;
  std::vector<std::string> written;
  {
    LineWriter writer(2, [&](const std::string& line) {
      if (line == "first") {
        started.set_value();
        gate.get_future().wait();
      }
      written.push_back(line);
    });
    writer.TryWrite("first");
    started.get_future().wait();
    for (const char* line : {"a", "b", "c", "d"}) writer.TryWrite(line);
    gate.set_value();
    writer.Write("last", std::chrono::hours(1));  // never dropped
  }
  EXPECT_THAT(written, Contains("b"));
  EXPECT_THAT(written, Not(Contains("c")));
  EXPECT_THAT(written, Contains("last"));
  EXPECT_THAT(written, Contains(HasSubstr("2 lines were dropped")));
}

}  // namespace
}  // namespace flash
