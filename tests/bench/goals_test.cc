#include "tests/bench/goals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flash {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(GoalsTest, AreMetWhereEveryNumberIsWithinItsBounds) {
  const json goals = json::parse(R"({
    "decode": [{"batch": 8, "fraction": {"min": 0.5, "max": 1.5}}],
    "flat": {"ratio": {"max": 1.05}}})");
  const json report = json::parse(R"({
    "decode": [{"batch": 1, "fraction": 0.1}, {"batch": 8, "fraction": 0.5}],
    "flat": {"ratio": 1.05, "more": 9}})");
  EXPECT_THAT(MissedGoals(goals, report), IsEmpty());
}

TEST(GoalsTest, NameWhatIsMissedAndBothNumbers) {
  const json goals = json::parse(R"({
    "decode": [{"batch": 8, "fraction": {"min": 0.5}}],
    "flat": {"ratio": {"max": 1.05}}})");
  const json report = json::parse(R"({
    "decode": [{"batch": 8, "fraction": 0.499}], "flat": {"ratio": 1.06}})");
  EXPECT_THAT(
      MissedGoals(goals, report),
      ElementsAre("decode[batch 8].fraction is 0.499, at least 0.500 is wanted",
                  "flat.ratio is 1.060, at most 1.050 is wanted"));
}

TEST(GoalsTest, AreMissedByWhatWasNotMeasured) {
  const json goals = json::parse(R"({
    "decode": [{"batch": 32, "fraction": {"min": 0.5}}],
    "flat": {"ratio": {"max": 1.05}},
    "prompt": {"fraction": {"min": 0.6}}})");
  const json report = json::parse(R"({
    "decode": [{"batch": 8, "fraction": 0.9}], "flat": {"ratio": null}})");
  EXPECT_THAT(MissedGoals(goals, report),
              ElementsAre(HasSubstr("[batch 32].fraction was not measured"),
                          HasSubstr("flat.ratio was not measured"),
                          HasSubstr("prompt.fraction was not measured")));
}

}  // namespace
}  // namespace flash
