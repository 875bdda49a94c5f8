// The lines that scripts read.

#include "client/client_output.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"

namespace flash {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(ClientOutputTest, WritesATokenAsOneObject) {
  v1::GenerateEvent event;
  auto& token = *event.mutable_token();
  token.mutable_token()->set_id(7);
  token.mutable_token()->set_logprob(-0.5f);
  token.set_text("né\n");
  const std::string line = EventJson(event, 1);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const json object = json::parse(line);
  EXPECT_EQ(object["token"]["id"], 7);
  EXPECT_EQ(object["token"]["text"], "né\n");
  EXPECT_EQ(object["token"]["logprob"], -0.5);
}

TEST(ClientOutputTest, LeavesOutALogprobThatNobodyAskedFor) {
  v1::GenerateEvent event;
  event.mutable_token()->mutable_token()->set_id(7);
  EXPECT_FALSE(json::parse(EventJson(event, 1))["token"].contains("logprob"));
}

TEST(ClientOutputTest, WritesTheEndWithItsUsage) {
  v1::GenerateEvent event;
  event.mutable_finished()->set_reason(v1::FINISH_REASON_STOP_STRING);
  event.mutable_finished()->mutable_stop()->set_text("end");
  event.mutable_usage()->set_prompt_tokens(uint64_t{1} << 40);
  const json object = json::parse(EventJson(event, 9));
  EXPECT_EQ(object["finished"]["reason"], "STOP_STRING");
  EXPECT_EQ(object["finished"]["stop"], "end");
  EXPECT_EQ(object["finished"]["seed"], 9);
  EXPECT_EQ(object["finished"]["usage"]["prompt_tokens"], uint64_t{1} << 40);
}

TEST(ClientOutputTest, NamesTheSessionThatTheTextWasSavedAs) {
  v1::GenerateEvent event;
  event.mutable_finished();
  EXPECT_FALSE(
      json::parse(EventJson(event, 9))["finished"].contains("session"));
  event.mutable_finished()->mutable_session()->set_id("s");
  EXPECT_EQ(json::parse(EventJson(event, 9))["finished"]["session"]["id"], "s");
}

TEST(ClientOutputTest, WritesNothingForWhatIsAccepted) {
  v1::GenerateEvent event;
  event.mutable_accepted();
  EXPECT_EQ(EventJson(event, 1), "");
  EXPECT_EQ(EventText(event), "");
}

TEST(ClientOutputTest, WritesCandidatesWhoseBytesAreNoText) {
  v1::GenerateEvent event;
  event.mutable_token()->mutable_token()->add_candidates()->set_piece("\xc3");
  const json object = json::parse(EventJson(event, 1));
  EXPECT_EQ(object["token"]["candidates"][0]["text"], "\uFFFD");
}

TEST(ClientOutputTest, WritesScores) {
  v1::ScoreResult result;
  result.add_token_ids(1);
  result.add_token_ids(2);
  result.add_logprobs(-1.5f);
  EXPECT_EQ(json::parse(ScoreJson(result))["logprobs"], json({-1.5}));
  EXPECT_THAT(ScoreText(result), HasSubstr("perplexity 4.48"));
  EXPECT_EQ(ScoreText({}), "0 tokens scored: none has one before it\n");
  EXPECT_EQ(json::parse(ScoreJson({}))["logprobs"], json::array());
}

TEST(ClientOutputTest, TellsWhatMemoryIsFor) {
  v1::ServerInfo server;
  v1::MemoryPart& part = *server.add_memory();
  part.set_name("prefix_cache");
  part.set_bytes(3 << 19);
  EXPECT_THAT(InfoText(server, {}), HasSubstr("1.5 MiB  prefix_cache\n"));
}

TEST(ClientOutputTest, WritesInfoWithNumbersAsNumbers) {
  v1::ServerInfo server;
  server.set_num_slots(4);
  v1::ModelInfo model;
  model.set_state_bytes(uint64_t{1} << 40);
  model.add_eos_token_ids(2);
  const json object = json::parse(InfoJson(server, model));
  EXPECT_EQ(object["server"]["num_slots"], 4);
  EXPECT_EQ(object["model"]["state_bytes"], uint64_t{1} << 40);
  EXPECT_EQ(object["model"]["eos_token_ids"], json({2}));
  EXPECT_FALSE(object["model"].contains("max_length"));
}

}  // namespace
}  // namespace flash
