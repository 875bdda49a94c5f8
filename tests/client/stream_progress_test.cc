// Streams that are cut anywhere add up to the one that is not.

#include "client/stream_progress.h"

#include "gmock/gmock.h"
#include "tests/client/scripted_server.h"

namespace flash {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

v1::GenerateRequest Request(uint64_t max_tokens, uint32_t num_outputs = 1) {
  v1::GenerateRequest request;
  request.set_text("The pr\u00f6mpt.");
  request.mutable_stopping()->set_max_tokens(max_tokens);
  request.mutable_sampling()->set_num_outputs(num_outputs);
  return request;
}

// What `progress` lets pass of the first `most` events.
std::vector<v1::GenerateEvent> Told(
    StreamProgress& progress, const std::vector<v1::GenerateEvent>& events,
    size_t most = 1 << 20) {
  std::vector<v1::GenerateEvent> told;
  for (size_t i = 0; i < events.size() && i < most; ++i) {
    v1::GenerateEvent event = events[i];
    const auto is_new = progress.Take(event);
    EXPECT_TRUE(is_new.ok()) << is_new.status();
    if (is_new.ok() && *is_new) told.push_back(event);
  }
  return told;
}

void Append(std::vector<v1::GenerateEvent>& all,
            const std::vector<v1::GenerateEvent>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Each event but those of the prompt, whose parts may differ, and what comes
// with the end of whichever output ends last.
std::vector<std::string> Lines(const std::vector<v1::GenerateEvent>& events) {
  std::vector<std::string> lines;
  for (v1::GenerateEvent event : events) {
    event.clear_usage();
    event.clear_timing();
    if (!event.has_prompt()) lines.push_back(event.ShortDebugString());
  }
  std::sort(lines.begin(), lines.end());  // outputs interleave as they like
  return lines;
}

std::string PromptText(const std::vector<v1::GenerateEvent>& events) {
  std::string text;
  for (const auto& event : events) text += event.prompt().text();
  return text;
}

std::vector<uint32_t> PromptIds(const std::vector<v1::GenerateEvent>& events) {
  std::vector<uint32_t> ids;
  for (const auto& event : events) {
    for (const auto& token : event.prompt().tokens()) ids.push_back(token.id());
  }
  return ids;
}

class CutTest : public testing::TestWithParam<int> {};  // tokens sent twice

TEST_P(CutTest, CutAnywhereTwiceTheStreamsAddUpToTheWholeOne) {
  for (const uint32_t num_outputs : {1u, 3u}) {
    v1::GenerateRequest request = Request(7, num_outputs);
    request.mutable_response()->set_echo(true);
    const auto whole = RightAnswer(request);
    const Script again = {.num_repeated = GetParam(),
                          .num_repeated_bytes = GetParam() * size_t{2}};
    for (size_t first = 0; first <= whole.size(); ++first) {
      for (size_t second = 0; second < 12; second += 3) {
        SCOPED_TRACE(testing::Message()
                     << num_outputs << " outputs, cut before " << first
                     << ", then " << second);
        StreamProgress progress(request);
        auto told =
            Told(progress, RightAnswer(progress.BeginStream(milliseconds(0))),
                 first);
        Append(told,
               Told(progress,
                    RightAnswer(progress.BeginStream(milliseconds(0)), again),
                    second));
        Append(told,
               Told(progress,
                    RightAnswer(progress.BeginStream(milliseconds(0)), again)));
        EXPECT_TRUE(progress.complete());
        EXPECT_TRUE(Lines(told) == Lines(whole));
        EXPECT_EQ(PromptText(told), PromptText(whole));
        EXPECT_EQ(PromptIds(told), PromptIds(whole));
        EXPECT_EQ(told.back().usage().SerializeAsString(),
                  whole.back().usage().SerializeAsString());
        EXPECT_FALSE(progress.TakeHeld().has_value());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Repeated, CutTest, testing::Values(0, 1, 4));

TEST(StreamProgressTest, AsksForTheRestOfTheSameAnswer) {
  v1::GenerateRequest request = Request(7, 2);
  request.mutable_stopping()->clear_max_tokens();
  request.mutable_stopping()->set_time_limit_ms(1000);
  request.mutable_response()->set_echo(true);
  request.mutable_response()->set_prompt_logprobs(0);
  request.mutable_response()->set_logprobs(1);
  StreamProgress progress(request);
  EXPECT_EQ(progress.BeginStream(milliseconds(0)).SerializeAsString(),
            request.SerializeAsString());
  const auto events = RightAnswer(request);
  Told(progress, events, 3 + 3);  // accepted, prompt, and three tokens
  const auto next = progress.BeginStream(milliseconds(300));
  EXPECT_EQ(next.request_id(), "made-here");
  EXPECT_EQ(next.sampling().seed(), 77u);
  EXPECT_EQ(next.stopping().max_tokens(), 12u);
  EXPECT_EQ(next.stopping().time_limit_ms(), 700u);
  EXPECT_FALSE(next.response().has_echo());
  EXPECT_FALSE(next.response().has_prompt_logprobs());
  EXPECT_TRUE(next.response().has_logprobs());
  ASSERT_EQ(next.prior_output_ids_size(), 2);
  EXPECT_THAT(next.prior_output_ids(0).ids(),
              ElementsAre(events[3].token().token().id(),
                          events[5].token().token().id()));
  EXPECT_THAT(next.prior_output_ids(1).ids(),
              ElementsAre(events[4].token().token().id()));
  EXPECT_EQ(progress.num_tokens(), 3u);
  EXPECT_EQ(progress.BeginStream(milliseconds(1000)).stopping().time_limit_ms(),
            1u);
}

TEST(StreamProgressTest, GoesOnAfterPriorIdsOfTheCallersOwn) {
  const auto whole = RightAnswer(Request(7));
  v1::GenerateRequest request = Request(7);
  for (int i = 1; i <= 3; ++i) {
    if (request.prior_output_ids_size() == 0) request.add_prior_output_ids();
    request.mutable_prior_output_ids(0)->add_ids(whole[i].token().token().id());
  }
  const auto rest = RightAnswer(request);
  StreamProgress progress(request);
  auto told = Told(progress, RightAnswer(request), 3);
  const auto next = progress.BeginStream(milliseconds(0));
  EXPECT_EQ(next.prior_output_ids(0).ids_size(), 5);
  Append(told, Told(progress, RightAnswer(next)));
  EXPECT_EQ(Lines(told), Lines(rest));
  EXPECT_EQ(told.back().usage().prior_tokens(), 3u);
}

TEST(StreamProgressTest, TakesOverTheSessionThatTheLastStreamClaimed) {
  v1::GenerateRequest request = Request(7);
  request.mutable_session()->set_id("s");
  StreamProgress progress(request);
  Told(progress, RightAnswer(request, {.session_epoch = 4}), 2);
  EXPECT_EQ(progress.BeginStream(milliseconds(0)).session().takeover_epoch(),
            4u);
  Told(progress, RightAnswer(request, {.session_epoch = 5}), 1);
  EXPECT_EQ(progress.BeginStream(milliseconds(0)).session().takeover_epoch(),
            5u);
  request.mutable_session()->set_unchanged(true);
  StreamProgress reader(request);
  Told(reader, RightAnswer(request), 2);
  EXPECT_FALSE(
      reader.BeginStream(milliseconds(0)).session().has_takeover_epoch());
}

// A stream may have written the session and told nothing of it.
TEST(StreamProgressTest, BeginsASessionAgainByAnIdOfItsOwn) {
  v1::GenerateRequest request = Request(7);
  request.mutable_session()->set_id("s");
  StreamProgress progress(request);
  EXPECT_TRUE(progress.may_begin_again());
  const v1::GenerateRequest first = progress.BeginStream(milliseconds(0));
  EXPECT_FALSE(first.session().has_takeover_epoch());
  EXPECT_GE(first.request_id().size(), 32u);
  const v1::GenerateRequest next = progress.BeginStream(milliseconds(0));
  EXPECT_TRUE(next.session().has_takeover_epoch());
  EXPECT_EQ(next.session().takeover_epoch(), 0u);
  EXPECT_EQ(next.request_id(), first.request_id());
  EXPECT_NE(StreamProgress(request).BeginStream(milliseconds(0)).request_id(),
            first.request_id());

  request.set_request_id("perhaps not the first of this name");
  StreamProgress named(request);
  EXPECT_FALSE(named.may_begin_again());
  Told(named, RightAnswer(request, {.session_epoch = 4}), 1);
  EXPECT_TRUE(named.may_begin_again());
}

TEST(StreamProgressTest, FindsAnAnswerThatDiffers) {
  const v1::GenerateRequest request = Request(7);
  StreamProgress progress(request);
  const auto whole = RightAnswer(request);
  Told(progress, whole, 4);
  v1::GenerateEvent event = RightAnswer(request, {.seed_shift = 1})[2];
  EXPECT_THAT(std::string(progress.Take(event).status().message()),
              HasSubstr("its token 1 is"));
  event = whole[0];
  event.mutable_accepted()->set_model("another");
  EXPECT_TRUE(absl::IsFailedPrecondition(progress.Take(event).status()));
  event = whole[0];
  event.mutable_accepted()->set_prompt_tokens(6);
  EXPECT_THAT(std::string(progress.Take(event).status().message()),
              HasSubstr("number of prompt tokens is 6 and was 5"));
}

TEST(StreamProgressTest, FindsWhatIsMissing) {
  const auto whole = RightAnswer(Request(7));
  StreamProgress progress(Request(7));
  v1::GenerateEvent event = whole[1];
  EXPECT_TRUE(absl::IsInternal(progress.Take(event).status()));
  Told(progress, whole, 3);
  event = whole[4];
  EXPECT_THAT(std::string(progress.Take(event).status().message()),
              HasSubstr("token 3, but not token 2"));
  event = whole[3];
  event.mutable_token()->set_text_offset(100);
  EXPECT_TRUE(absl::IsInternal(progress.Take(event).status()));
  event = whole[3];
  event.mutable_token()->set_output_index(1);
  EXPECT_TRUE(absl::IsInternal(progress.Take(event).status()));
}

}  // namespace
}  // namespace flash
