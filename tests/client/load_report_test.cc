#include "client/load_report.h"

#include "gmock/gmock.h"

namespace flash {
namespace {

using testing::HasSubstr;

TEST(LoadReportTest, TellsWhatWasMeasured) {
  LoadSettings settings;
  settings.sessions = 3;
  LoadResult result;
  result.seconds = 2;
  result.tokens = 100;
  result.by_status = {{"OK", 4}, {"RESOURCE_EXHAUSTED", 1}};
  result.requests_cut = 3;
  result.requests_failed = 2;
  result.first_failure = "UNAVAILABLE: gone";
  result.gap_ms.Add(1.5);
  v1::ServerInfo server;
  server.set_version("1.2.3");
  const auto json = LoadJson(settings, result, server, {});
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["settings"]["sessions"], 3);
  EXPECT_EQ(json["tokens_per_second"], 50);
  EXPECT_EQ(json["requests_by_status"]["OK"], 4);
  EXPECT_EQ(json["requests_failed"], 2);
  EXPECT_EQ(json["first_failure"], "UNAVAILABLE: gone");
  EXPECT_EQ(json["gap_ms"]["p99_9"], 1.5);
  EXPECT_EQ(json["server"]["version"], "1.2.3");
  const std::string table = LoadTable(settings, result);
  EXPECT_THAT(table, HasSubstr("50.0 a second (100 tokens)"));
  EXPECT_THAT(table, HasSubstr("4 OK, 1 RESOURCE_EXHAUSTED, 3 cut off"));
}

TEST(LoadReportTest, IsContentWithAFewThatAFullQueueRefused) {
  LoadResult result;
  result.tokens = 100;
  result.by_status = {{"OK", 9}, {"RESOURCE_EXHAUSTED", 1}};
  result.requests_refused = 1;
  EXPECT_TRUE(Verdict(result, 0.1).ok());
  EXPECT_THAT(std::string(Verdict(result, 0.05).message()),
              HasSubstr("refused 1 of 10 requests: more than the part "
                        "--max_refused=0.05"));
  result.by_status["RESOURCE_EXHAUSTED"] = result.requests_refused = 1000;
  EXPECT_FALSE(Verdict(result, 0.1).ok());
  EXPECT_TRUE(Verdict(result, 1).ok());
}

TEST(LoadReportTest, IsNotContentWithAFailureOrWithoutATokens) {
  LoadResult result;
  EXPECT_THAT(std::string(Verdict(result, 1).message()),
              HasSubstr("no token came back"));
  result.requests_failed = 2;
  result.first_failure = "UNAVAILABLE: gone";
  EXPECT_THAT(std::string(Verdict(result, 1).message()),
              HasSubstr("2 requests failed, the first with UNAVAILABLE: gone"));
}

TEST(LoadReportTest, AsksTheSameOfTheSameSession) {
  LoadSettings settings;
  settings.prompt_tokens = 50;
  v1::ModelInfo model;
  model.set_num_pieces(10);
  const auto request = LoadRequest(settings, model, 1, 2);
  EXPECT_EQ(request.SerializeAsString(),
            LoadRequest(settings, model, 1, 2).SerializeAsString());
  EXPECT_NE(request.SerializeAsString(),
            LoadRequest(settings, model, 1, 3).SerializeAsString());
  EXPECT_EQ(request.token_ids().ids_size(), 50);
  for (const uint32_t id : request.token_ids().ids()) EXPECT_LT(id, 10u);
  EXPECT_TRUE(request.stopping().ignore_eos());
}

}  // namespace
}  // namespace flash
