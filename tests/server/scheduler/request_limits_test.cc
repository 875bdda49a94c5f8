#include "server/scheduler/request_limits.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flash {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr RequestLimits kLimits = {.num_slots = 4,
                                   .vocab_size = 100,
                                   .max_length = 20,
                                   .max_prompt_logprobs = 30,
                                   .max_queued_tokens = 18};

Request Good() {
  Request request;
  request.prompt = {1, 2, 3};
  request.stopping.max_tokens = 5;
  return request;
}

// Expects a refusal that names all of these.
void ExpectRefused(const Request& request, const std::string& field,
                   const std::string& value, const std::string& limit) {
  const absl::Status status = CheckRequest(request, kLimits);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(field), HasSubstr(value), HasSubstr(limit)));
}

TEST(RequestLimitsTest, LetsAGoodRequestPass) {
  EXPECT_TRUE(CheckRequest(Good(), kLimits).ok());
}

TEST(RequestLimitsTest, RefusesMoreOutputsThanSlotsOrNone) {
  Request request = Good();
  request.num_outputs = 4;
  EXPECT_TRUE(CheckRequest(request, kLimits).ok());
  request.num_outputs = 5;
  ExpectRefused(request, "num_outputs", "5", "4");
  request.num_outputs = 0;
  ExpectRefused(request, "num_outputs", "0", "1");
}

TEST(RequestLimitsTest, RefusesAnEmptyPrompt) {
  Request request = Good();
  request.prompt.clear();
  ExpectRefused(request, "prompt", "", "");
}

TEST(RequestLimitsTest, RefusesAPromptLongerThanTheModelAllows) {
  RequestLimits limits = kLimits;
  limits.max_queued_tokens = 1000;
  Request request = Good();
  request.prompt.assign(20, 1);
  EXPECT_TRUE(CheckRequest(request, limits).ok());
  request.prompt.assign(21, 1);
  EXPECT_THAT(std::string(CheckRequest(request, limits).message()),
              AllOf(HasSubstr("prompt"), HasSubstr("21"),
                    HasSubstr("max_length"), HasSubstr("20")));
  limits.max_length.reset();
  EXPECT_TRUE(CheckRequest(request, limits).ok());
}

TEST(RequestLimitsTest, RefusesAPromptThatNeverFitsIntoTheQueue) {
  Request request = Good();
  request.prompt.assign(19, 1);
  ExpectRefused(request, "prompt", "19", "max_queued_tokens");
}

TEST(RequestLimitsTest, RefusesIdsOutsideTheVocabulary) {
  Request request = Good();
  request.prompt[1] = 100;
  ExpectRefused(request, "prompt[1]", "100", "99");
  request.prompt[1] = -1;
  ExpectRefused(request, "prompt[1]", "-1", "99");
  request.prompt[1] = 2;
  request.prior_output_ids = {{1, 2, 300}};
  ExpectRefused(request, "prior_output_ids[0][2]", "300", "99");
}

TEST(RequestLimitsTest, RefusesTooManyPromptLogprobs) {
  Request request = Good();
  request.prompt.assign(10, 1);
  request.response.prompt_logprobs = 2;
  EXPECT_TRUE(CheckRequest(request, kLimits).ok());
  request.response.prompt_logprobs = 3;
  ExpectRefused(request, "prompt", "40", "30");
}

TEST(RequestLimitsTest, RefusesPriorIdsThatDoNotGoWithTheRest) {
  Request request = Good();
  request.num_outputs = 2;
  request.prior_output_ids = {{1}};
  ExpectRefused(request, "prior_output_ids", "1", "2");
  request.prior_output_ids = {{1}, {1, 1, 1, 1, 1, 1}};
  ExpectRefused(request, "prior_output_ids[1]", "6", "max_tokens");
  request.stopping.max_tokens = 50;
  request.prompt.assign(16, 1);
  request.prior_output_ids = {{}, {1, 1, 1, 1, 1}};
  ExpectRefused(request, "prior_output_ids[1]", "21", "max_length");
}

Snapshot GoodStart() {
  Snapshot start;
  start.position = 2;
  start.state = std::make_shared<const std::string>("state");
  start.pending = {7};
  start.recent = {{5, false}, {6, true}, {7, true}};
  start.incomplete = "\xC3";
  return start;
}

Request GoingOnFrom(const Snapshot& start) {
  Request request = Good();
  request.start = std::make_shared<const Snapshot>(start);
  return request;
}

TEST(RequestLimitsTest, NeedsNoPromptAfterWhatHasNotEnded) {
  Snapshot start = GoodStart();
  Request request = GoingOnFrom(start);
  EXPECT_TRUE(CheckRequest(request, kLimits).ok());
  request.prompt.clear();
  EXPECT_TRUE(CheckRequest(request, kLimits).ok());
  start.ended = true;
  request = GoingOnFrom(start);
  EXPECT_TRUE(CheckRequest(request, kLimits).ok());
  request.prompt.clear();
  ExpectRefused(request, "prompt", "ended", "");
  start.ended = false;
  start.pending.clear();
  start.recent.pop_back();
  request = GoingOnFrom(start);
  request.prompt.clear();
  ExpectRefused(request, "prompt", "ended", "");
}

TEST(RequestLimitsTest, CountsTheTextBeforeThePrompt) {
  Snapshot start = GoodStart();
  start.position = 17;
  Request request = GoingOnFrom(start);
  ExpectRefused(request, "prompt and the text before it", "21", "max_length");
  request.prompt.resize(2);
  EXPECT_TRUE(CheckRequest(request, kLimits).ok());
  request.prior_output_ids = {{1}};
  ExpectRefused(request, "prior_output_ids[0]", "21", "max_length");
}

TEST(RequestLimitsTest, RefusesAStartThatIsDamaged) {
  std::vector<Snapshot> damaged(8, GoodStart());
  damaged[0].state = nullptr;
  damaged[1].position = -1;
  damaged[2].pending = {100};
  damaged[3].recent.back().id = 8;
  damaged[4].recent.front().id = -1;
  damaged[5].incomplete = "a";
  damaged[6].held = "\xC3";
  damaged[7].position = 0;
  for (const Snapshot& each : damaged) {
    ExpectRefused(GoingOnFrom(each), "goes on from", "damaged", "");
  }
}

}  // namespace
}  // namespace flash
