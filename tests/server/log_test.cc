#include "server/log.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(LogTest, WritesACallAsOneLineOfJson) {
  CallReport report;
  report.method = "Generate";
  report.peer = "ipv4:127.0.0.1:5";
  report.request_id = "a \"quoted\"\nid";
  report.status = absl::CancelledError("gone\xff");
  report.usage.completion_tokens = 7;
  report.timings.queue = std::chrono::microseconds(1500);
  const std::string line = CallLine(report, std::nullopt, 12.5);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["time"], 12.5);
  EXPECT_EQ(json["method"], "Generate");
  EXPECT_EQ(json["request_id"], report.request_id);
  EXPECT_EQ(json["status"], "CANCELLED");
  EXPECT_EQ(json["completion_tokens"], 7);
  EXPECT_EQ(json["queue_ms"], 1.5);
}

TEST(LogTest, SaysNothingMoreOfACallThatWentWell) {
  const auto json = nlohmann::json::parse(CallLine({}, 2048, 0));
  EXPECT_EQ(json["status"], "OK");
  EXPECT_FALSE(json.contains("message"));
  EXPECT_FALSE(json.contains("warning"));
}

TEST(LogTest, WarnsOnceOfATextLongerThanTheModelWasTrainedOn) {
  CallReport report;
  report.usage.longest_tokens = 2048;
  EXPECT_FALSE(
      nlohmann::json::parse(CallLine(report, 2048, 0)).contains("warning"));
  report.usage.longest_tokens = 2049;
  const std::string warning =
      nlohmann::json::parse(CallLine(report, 2048, 0))["warning"];
  EXPECT_NE(warning.find("2049"), std::string::npos);
  EXPECT_NE(warning.find("2048"), std::string::npos);
}

}  // namespace
}  // namespace flash
