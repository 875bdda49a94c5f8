// What clients may ask for, and what they are told otherwise.

#include "server/service/request_parser.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "server/service/errors.h"
#include "server/tokenizer/byte_tokenizer.h"
#include "server/tokenizer/no_tokenizer.h"
#include "tests/server/service/service_fixture.h"
#include "tests/server/service/wire_details.h"

namespace flash {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RequestParserTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Request>> Parse(
      const v1::GenerateRequest& wire) const {
    const RequestParser parser(limits_, model_, &tokenizer_);
    auto request = parser.Parse(wire);
    if (!request.ok()) return request;
    (*request)->start = session_;
    absl::Status status = parser.ReadPrompt(InputOf(wire), **request);
    if (status.ok()) status = parser.Settle(**request);
    if (!status.ok()) return status;
    return request;
  }

  // What is said of `field`, if `wire` is refused for it.
  std::string Violation(const v1::GenerateRequest& wire,
                        const std::string& field) const {
    const auto request = Parse(wire);
    const grpc::Status status = ToGrpcStatus(request.status());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    const WireDetails details = DetailsOf(status);
    EXPECT_EQ(details.reason, "INVALID_REQUEST");
    EXPECT_EQ(details.domain, "flash");
    EXPECT_THAT(status.error_message(), HasSubstr(field));
    const auto found = details.violations.find(field);
    if (found == details.violations.end()) {
      return "nothing about " + field + ": " + status.error_message();
    }
    return found->second;
  }

  ServiceLimits limits_;
  ModelFacts model_ = ByteModelFacts();
  std::shared_ptr<const Snapshot> session_;  // that the requests go on from
  ByteTokenizer tokenizer_;
};

TEST_F(RequestParserTest, FillsInTheDefaults) {
  v1::GenerateRequest wire;
  wire.set_text("hi");
  const auto request = Parse(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT((*request)->prompt, ElementsAre(kBos, 'h', 'i'));
  EXPECT_EQ((*request)->sampling.temperature, 1);
  EXPECT_EQ((*request)->sampling.top_p, 1);
  EXPECT_EQ((*request)->stopping.max_tokens, limits_.default_max_tokens);
  EXPECT_EQ((*request)->response.logprobs, -1);
  EXPECT_EQ((*request)->num_outputs, 1);
  EXPECT_THAT((*request)->id, HasSubstr("req-"));
}

TEST_F(RequestParserTest, TellsZeroFromUnset) {
  v1::GenerateRequest wire;
  wire.set_text("hi");
  wire.mutable_sampling()->set_temperature(0);
  wire.mutable_sampling()->set_penalty_window(0);
  wire.mutable_sampling()->set_seed(0);
  wire.mutable_stopping()->set_max_tokens(0);
  wire.mutable_response()->set_logprobs(0);
  const auto request = Parse(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->sampling.temperature, 0);
  EXPECT_EQ((*request)->sampling.penalty_window, 0);
  EXPECT_EQ((*request)->sampling.seed, 0u);
  EXPECT_EQ((*request)->stopping.max_tokens, 0);
  EXPECT_EQ((*request)->response.logprobs, 0);
}

TEST_F(RequestParserTest, PutsNothingBeforeTokenIds) {
  v1::GenerateRequest wire;
  wire.mutable_token_ids()->add_ids(7);
  const auto request = Parse(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT((*request)->prompt, ElementsAre(7));
}

TEST_F(RequestParserTest, TakesAnEmptyTextWhereThereIsABos) {
  v1::GenerateRequest wire;
  wire.set_text("");
  auto request = Parse(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT((*request)->prompt, ElementsAre(kBos));
  model_.bos_token_id.reset();
  EXPECT_THAT(Violation(wire, "text"), HasSubstr("the least is 1"));
}

TEST_F(RequestParserTest, GivesNoMoreTokensThanMaxLengthHasRoomFor) {
  model_.max_length = 10;
  v1::GenerateRequest wire;
  wire.set_text("hello");
  const auto request = Parse(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->stopping.max_tokens, 4);
  wire.set_text("hello again");
  EXPECT_THAT(Violation(wire, "text"), HasSubstr("12 tokens; the most is 10"));
}

TEST_F(RequestParserTest, SortsAllowedIds) {
  v1::GenerateRequest wire;
  wire.set_text("x");
  for (const uint32_t id : {9, 3, 9, 5}) {
    wire.mutable_sampling()->add_allowed_token_ids(id);
  }
  const auto request = Parse(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT((*request)->sampling.allowed_token_ids, ElementsAre(3, 5, 9));
}

TEST_F(RequestParserTest, RefusesAnotherModel) {
  v1::GenerateRequest wire;
  wire.set_text("x");
  wire.set_model("other");
  const grpc::Status status = ToGrpcStatus(Parse(wire).status());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(DetailsOf(status).reason, "MODEL_NOT_FOUND");
  EXPECT_EQ(DetailsOf(status).resource, "model/other");
  wire.set_model("bytes");
  EXPECT_TRUE(Parse(wire).ok());
}

TEST_F(RequestParserTest, RefusesTextWithoutATokenizer) {
  const NoTokenizer none(260);
  model_.has_text = false;
  const RequestParser parser(limits_, model_, &none);
  v1::GenerateRequest wire;
  wire.set_text("x");
  EXPECT_TRUE(absl::IsFailedPrecondition(parser.Parse(wire).status()));
  wire.mutable_token_ids()->add_ids(1);
  EXPECT_TRUE(parser.Parse(wire).ok());
  wire.mutable_stopping()->add_stop_strings("x");
  const grpc::Status status = ToGrpcStatus(parser.Parse(wire).status());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(DetailsOf(status).reason, "NO_TOKENIZER");
}

TEST_F(RequestParserTest, TellsSeveralMistakesAtOnceButNotAll) {
  v1::GenerateRequest wire;
  wire.mutable_sampling()->set_top_p(2);
  wire.mutable_sampling()->set_temperature(-1);
  EXPECT_THAT(Violation(wire, "input"), HasSubstr("not set"));
  EXPECT_THAT(Violation(wire, "sampling.top_p"), HasSubstr("is 2;"));
  EXPECT_THAT(Violation(wire, "sampling.temperature"), HasSubstr("is -1;"));
  for (uint32_t i = 0; i < 1000; ++i) {
    (*wire.mutable_sampling()->mutable_logit_bias())[300 + i] = 1000;
  }
  const grpc::Status status = ToGrpcStatus(Parse(wire).status());
  EXPECT_LT(status.error_details().size() + status.error_message().size(),
            5000u);
  EXPECT_THAT(status.error_message(), HasSubstr("more"));
}

TEST_F(RequestParserTest, RefusesFieldsThatItDoesNotKnow) {
  v1::GenerateRequest wire;
  wire.set_text("x");
  wire.GetReflection()->MutableUnknownFields(&wire)->AddVarint(9, 1);
  EXPECT_THAT(Violation(wire, "#9"), HasSubstr("not a field"));
  v1::GenerateRequest nested;
  nested.set_text("x");
  auto* sampling = nested.mutable_sampling();
  sampling->GetReflection()->MutableUnknownFields(sampling)->AddVarint(77, 1);
  EXPECT_THAT(Violation(nested, "sampling.#77"), HasSubstr("not a field"));
}

TEST_F(RequestParserTest, BoundsPromptAndPriorIdsTogether) {
  model_.max_length = 4;
  v1::GenerateRequest wire;
  wire.set_text("ab");  // and BOS
  wire.add_prior_output_ids()->add_ids('c');
  EXPECT_TRUE(Parse(wire).ok());
  wire.mutable_prior_output_ids(0)->add_ids('d');
  EXPECT_EQ(Violation(wire, "prior_output_ids[0].ids"),
            "has 2 entries, with the prompt 5 tokens; the most is 4");
}

v1::GenerateRequest SessionRequest() {
  v1::GenerateRequest wire;
  wire.mutable_session()->set_id("some");
  return wire;
}

TEST_F(RequestParserTest, AppendsToASessionWithoutBos) {
  v1::GenerateRequest wire = SessionRequest();
  wire.set_text("hi");
  const auto request = Parse(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT((*request)->prompt, ElementsAre('h', 'i'));
  EXPECT_TRUE((*request)->save);
  wire.set_text("");
  EXPECT_THAT(Violation(wire, "text"), HasSubstr("leave it out"));
}

TEST_F(RequestParserTest, NeedsNoPromptToGoOnWithASession) {
  const auto request = Parse(SessionRequest());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT((*request)->prompt, IsEmpty());
  EXPECT_TRUE(SessionUseOf(SessionRequest()).keeps_seed);
}

TEST_F(RequestParserTest, KeepsTheSeedOfASessionThatGoesOnAsItIsAlone) {
  v1::GenerateRequest wire = SessionRequest();
  wire.mutable_sampling()->set_seed(3);
  EXPECT_FALSE(SessionUseOf(wire).keeps_seed);
  wire = SessionRequest();
  wire.set_text("more");
  EXPECT_FALSE(SessionUseOf(wire).keeps_seed);
  EXPECT_FALSE(SessionUseOf(v1::GenerateRequest()).keeps_seed);
}

TEST_F(RequestParserTest, SavesAClaimedSessionAndOthersIfTold) {
  v1::GenerateRequest wire = SessionRequest();
  EXPECT_TRUE(SessionUseOf(wire).save);
  wire.mutable_session()->set_unchanged(true);
  EXPECT_FALSE(SessionUseOf(wire).save);
  wire.set_save_session(true);
  EXPECT_TRUE(SessionUseOf(wire).save);
  EXPECT_FALSE(SessionUseOf(TextRequest("x", 1)).save);
}

TEST_F(RequestParserTest, RefusesWhatNoSessionCanDo) {
  v1::GenerateRequest wire;
  wire.mutable_session();
  EXPECT_THAT(Violation(wire, "session.id"), HasSubstr("required"));
  wire = SessionRequest();
  wire.set_save_session(false);
  EXPECT_THAT(Violation(wire, "save_session"), HasSubstr("unchanged"));
  wire = SessionRequest();
  wire.mutable_sampling()->set_num_outputs(2);
  EXPECT_THAT(Violation(wire, "sampling.num_outputs"),
              HasSubstr("is 2; the most is 1"));
  wire.mutable_session()->set_unchanged(true);
  EXPECT_TRUE(Parse(wire).ok());
  wire.mutable_session()->set_takeover_epoch(1);
  EXPECT_THAT(Violation(wire, "session.takeover_epoch"), HasSubstr("claimed"));
  wire.mutable_session()->clear_unchanged();
  wire.mutable_session()->set_takeover_epoch(0);
  EXPECT_THAT(Violation(wire, "session.takeover_epoch"),
              HasSubstr("request_id"));
  wire.mutable_session()->set_takeover_epoch(~uint64_t{0});
  EXPECT_THAT(Violation(wire, "session.takeover_epoch"),
              HasSubstr("at most 9223372036854775807"));
}

TEST_F(RequestParserTest, CountsTheSessionsTokensToo) {
  model_.max_length = 10;
  auto session = std::make_shared<Snapshot>();
  session->position = 4;
  session->pending = {'x'};
  session_ = session;
  v1::GenerateRequest wire = SessionRequest();
  wire.set_text("ab");
  const auto request = Parse(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->stopping.max_tokens, 3);
  wire.set_text("abcdef");
  EXPECT_THAT(Violation(wire, "input"), HasSubstr("11; the most is 10"));
  wire.set_text("abcd");
  wire.add_prior_output_ids()->add_ids('c');
  EXPECT_TRUE(Parse(wire).ok());
  wire.mutable_prior_output_ids(0)->add_ids('c');
  EXPECT_THAT(Violation(wire, "prior_output_ids[0].ids"),
              HasSubstr("11 tokens; the most is 10"));
}

TEST_F(RequestParserTest, CountsMistakesThatItDoesNotTell) {
  v1::GenerateRequest wire;
  wire.set_text("x");
  for (uint32_t i = 0; i < 1000; ++i) {
    wire.mutable_sampling()->mutable_logit_bias()->insert({i, 1000});
  }
  const grpc::Status status = ToGrpcStatus(Parse(wire).status());
  // 1000 values, and 744 ids of no piece.
  EXPECT_THAT(status.error_message(), HasSubstr("and 1736 more"));
}

TEST_F(RequestParserTest, BoundsWhatAPromptMayAskFor) {
  limits_.max_prompt_tokens = 8;
  limits_.max_prompt_candidates = 12;
  v1::GenerateRequest wire;
  for (int i = 0; i < 9; ++i) wire.mutable_token_ids()->add_ids(i);
  EXPECT_THAT(Violation(wire, "token_ids.ids"),
              HasSubstr("9 entries; the most is 8"));
  wire.mutable_token_ids()->mutable_ids()->RemoveLast();
  wire.mutable_response()->set_prompt_logprobs(1);
  EXPECT_THAT(Violation(wire, "token_ids.ids"), HasSubstr("16 candidates"));
  wire.mutable_response()->clear_prompt_logprobs();
  EXPECT_TRUE(Parse(wire).ok());
}

TEST_F(RequestParserTest, BoundsTheTextThatItTokenises) {
  limits_.max_text_bytes = 8;
  v1::GenerateRequest wire;
  wire.set_text("123456789");
  EXPECT_THAT(Violation(wire, "text"), HasSubstr("9 bytes; the most is 8"));
  wire.set_text("12345678");
  EXPECT_TRUE(Parse(wire).ok());
}

TEST_F(RequestParserTest, BoundsWhatAUnaryAnswerMayHold) {
  v1::GenerateRequest wire;
  wire.set_text("x");
  wire.mutable_stopping()->set_max_tokens(limits_.max_tokens);
  const auto request = Parse(wire);
  ASSERT_TRUE(request.ok());
  const RequestParser parser(limits_, model_, &tokenizer_);
  EXPECT_TRUE(parser.CheckUnarySize(**request).ok());
  (*request)->response.logprobs = 1;
  EXPECT_TRUE(absl::IsInvalidArgument(parser.CheckUnarySize(**request)));
}

TEST_F(RequestParserTest, ReadsAScoreRequest) {
  const RequestParser parser(limits_, model_, &tokenizer_);
  v1::ScoreRequest wire;
  wire.set_text("ab");
  wire.set_candidates(3);
  auto request = parser.Parse(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->stopping.max_tokens, 0);
  EXPECT_EQ((*request)->response.prompt_logprobs, 3);
  wire.set_candidates(21);
  EXPECT_TRUE(absl::IsInvalidArgument(parser.Parse(wire).status()));
}

TEST_F(RequestParserTest, RefusesTextThatIsNotUtf8) {
  const RequestParser parser(limits_, model_, &tokenizer_);
  const std::string text = "\xff";
  Request request;
  const grpc::Status status =
      ToGrpcStatus(parser.ReadPrompt({.text = &text}, request));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(DetailsOf(status).violations["text"], HasSubstr("UTF-8"));
}

// One way to be wrong: what is set, which field is named, what is said.
struct Mistake {
  const char* name;
  std::function<void(v1::GenerateRequest&)> make;
  std::string field;
  std::string says;
};

class MistakeTest : public RequestParserTest,
                    public testing::WithParamInterface<Mistake> {};

TEST_P(MistakeTest, NamesFieldValueAndLimit) {
  v1::GenerateRequest wire;
  wire.set_text("x");
  ASSERT_TRUE(Parse(wire).ok());
  GetParam().make(wire);
  EXPECT_THAT(Violation(wire, GetParam().field), HasSubstr(GetParam().says));
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

#define MISTAKE(name, statement, field, says)                      \
  Mistake {                                                        \
#name, [](v1::GenerateRequest & r) { statement; }, field, says \
  }

INSTANTIATE_TEST_SUITE_P(
    All, MistakeTest,
    testing::Values(
        MISTAKE(Temperature, r.mutable_sampling()->set_temperature(-0.5f),
                "sampling.temperature", "is -0.5"),
        MISTAKE(TemperatureNan, r.mutable_sampling()->set_temperature(kNan),
                "sampling.temperature", "is nan"),
        MISTAKE(TemperatureInfinite,
                r.mutable_sampling()->set_temperature(kInfinity),
                "sampling.temperature", "is inf"),
        MISTAKE(TopPZero, r.mutable_sampling()->set_top_p(0), "sampling.top_p",
                "is 0; it must be more than 0 and at most 1"),
        MISTAKE(TopPNan, r.mutable_sampling()->set_top_p(kNan),
                "sampling.top_p", "is nan"),
        MISTAKE(MinP, r.mutable_sampling()->set_min_p(1.5f), "sampling.min_p",
                "is 1.5"),
        MISTAKE(TopK, r.mutable_sampling()->set_top_k(4'000'000'000u),
                "sampling.top_k", "is 4000000000; the most is"),
        MISTAKE(Repetition, r.mutable_sampling()->set_repetition_penalty(0),
                "sampling.repetition_penalty", "is 0"),
        MISTAKE(Presence, r.mutable_sampling()->set_presence_penalty(3),
                "sampling.presence_penalty", "is 3"),
        MISTAKE(Frequency, r.mutable_sampling()->set_frequency_penalty(-3),
                "sampling.frequency_penalty", "is -3"),
        MISTAKE(Window, r.mutable_sampling()->set_penalty_window(65537),
                "sampling.penalty_window", "is 65537; the most is 65536"),
        MISTAKE(NoOutputs, r.mutable_sampling()->set_num_outputs(0),
                "sampling.num_outputs", "is 0; the least is 1"),
        MISTAKE(ManyOutputs, r.mutable_sampling()->set_num_outputs(17),
                "sampling.num_outputs", "is 17; the most is 16"),
        MISTAKE(BiasId, (*r.mutable_sampling()->mutable_logit_bias())[256] = 1,
                "sampling.logit_bias[256]", "ids are from 0 to 255"),
        MISTAKE(BiasInfinite,
                (*r.mutable_sampling()->mutable_logit_bias())[1] = -kInfinity,
                "sampling.logit_bias[1]", "is -inf"),
        MISTAKE(ManyBiases,
                for (int i = 0; i < 1025;
                     ++i) (*r.mutable_sampling()->mutable_logit_bias())[i] = 1,
                "sampling.logit_bias", "has 1025 entries; the most is 1024"),
        MISTAKE(Allowed, r.mutable_sampling()->add_allowed_token_ids(256),
                "sampling.allowed_token_ids[0]", "is 256")));

INSTANTIATE_TEST_SUITE_P(
    Others, MistakeTest,
    testing::Values(
        MISTAKE(MaxTokens, r.mutable_stopping()->set_max_tokens(1 << 21),
                "stopping.max_tokens", "is 2097152; the most is 1048576"),
        MISTAKE(MinTokens, r.mutable_stopping()->set_max_tokens(5);
                r.mutable_stopping()->set_min_tokens(6), "stopping.min_tokens",
                "is 6; the most is max_tokens, which is 5"),
        MISTAKE(MinTokensOfDefault, r.mutable_stopping()->set_min_tokens(1025),
                "stopping.min_tokens", "which is 1024"),
        MISTAKE(StopId, r.mutable_stopping()->add_stop_token_ids(260),
                "stopping.stop_token_ids[0]", "is 260"),
        MISTAKE(ManyStopIds,
                for (int i = 0; i < 65; ++i) r.mutable_stopping()
                    ->add_stop_token_ids(1),
                "stopping.stop_token_ids", "has 65 entries; the most is 64"),
        MISTAKE(EmptyStop, r.mutable_stopping()->add_stop_strings(""),
                "stopping.stop_strings[0]", "has 0 bytes"),
        MISTAKE(LongStop,
                r.mutable_stopping()->add_stop_strings(std::string(257, 'x')),
                "stopping.stop_strings[0]", "has 257 bytes"),
        MISTAKE(ManyStops,
                for (int i = 0; i < 17; ++i) r.mutable_stopping()
                    ->add_stop_strings("x"),
                "stopping.stop_strings", "has 17 entries; the most is 16"),
        MISTAKE(TimeLimit, r.mutable_stopping()->set_time_limit_ms(0),
                "stopping.time_limit_ms", "is 0; the least is 1"),
        MISTAKE(Logprobs, r.mutable_response()->set_logprobs(21),
                "response.logprobs", "is 21; the most is 20"),
        MISTAKE(PromptLogprobs, r.mutable_response()->set_prompt_logprobs(21),
                "response.prompt_logprobs", "is 21; the most is 20"),
        MISTAKE(EmptyId, r.set_request_id(""), "request_id", "of 0 bytes"),
        MISTAKE(LongId, r.set_request_id(std::string(129, 'i')), "request_id",
                "of 129 bytes; it must be 1 to 128"),
        MISTAKE(UnprintableId, r.set_request_id("a\nb"), "request_id",
                "\"a?b\""),
        MISTAKE(NoIds, r.mutable_token_ids(), "token_ids.ids", "has 0 entries"),
        MISTAKE(BadId, r.mutable_token_ids()->add_ids(260), "token_ids.ids[0]",
                "is 260; ids are from 0 to 259"),
        MISTAKE(HugeId, r.mutable_token_ids()->add_ids(4'000'000'000u),
                "token_ids.ids[0]", "is 4000000000"),
        MISTAKE(EchoOfPadding, r.mutable_token_ids()->add_ids(257);
                r.mutable_response()->set_echo(true), "token_ids.ids[0]",
                "ids are from 0 to 255"),
        MISTAKE(PriorCount, r.add_prior_output_ids();
                r.add_prior_output_ids(), "prior_output_ids",
                "has 2 lists; it must have none, or one for each of 1"),
        MISTAKE(PriorId, r.add_prior_output_ids()->add_ids(256),
                "prior_output_ids[0].ids[0]", "is 256"),
        MISTAKE(LongPrior, r.mutable_stopping()->set_max_tokens(1);
                r.add_prior_output_ids()->add_ids(1);
                r.mutable_prior_output_ids(0)->add_ids(1),
                "prior_output_ids[0].ids",
                "has 2 entries; the most is max_tokens, which is 1"),
        MISTAKE(NothingToChoose,
                r.mutable_sampling()->add_allowed_token_ids(kEos);
                r.mutable_stopping()->set_min_tokens(1), "stopping.min_tokens",
                "nothing else")),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace flash
