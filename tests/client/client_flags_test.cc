#include "client/client_flags.h"

#include <cstdio>
#include <fstream>

#include "absl/flags/reflection.h"
#include "gmock/gmock.h"

namespace flash {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ClientFlagsTest : public testing::Test {
 protected:
  void Set(const std::vector<std::string>& arguments) {
    Program program = ClientProgram();
    program.commands.clear();  // flags alone
    const auto line = ReadCommandLine(
        program, arguments, [](const char*) -> const char* { return nullptr; });
    ASSERT_TRUE(line.ok()) << line.status();
  }
  static std::string Error(const absl::Status& status) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }
  const absl::FlagSaver saver_;
};

TEST_F(ClientFlagsTest, LeavesUnsetWhatIsNotSaid) {
  Set({"--prompt="});
  const auto request = GenerateRequestFromFlags();
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->has_text());
  EXPECT_EQ(request->text(), "");
  EXPECT_FALSE(request->sampling().has_temperature());
  EXPECT_FALSE(request->stopping().has_max_tokens());
  EXPECT_FALSE(request->response().has_logprobs());
}

TEST_F(ClientFlagsTest, TellsZeroFromUnset) {
  Set({"--prompt=x", "--temperature=0", "--seed=0", "--max_tokens=0",
       "--logprobs=0", "--output=json", "--stop=a,b"});
  const auto request = GenerateRequestFromFlags();
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->sampling().has_temperature());
  EXPECT_TRUE(request->sampling().has_seed());
  EXPECT_TRUE(request->stopping().has_max_tokens());
  EXPECT_TRUE(request->response().has_logprobs());
  EXPECT_THAT(request->stopping().stop_strings(), ElementsAre("a,b"));
}

TEST_F(ClientFlagsTest, ReadsIds) {
  Set({"--prompt_ids=3, 1,2"});
  const auto request = GenerateRequestFromFlags();
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->token_ids().ids(), ElementsAre(3, 1, 2));
  EXPECT_THAT(std::string(ParseIds("ids", "1,-2").status().message()),
              HasSubstr("--ids has \"-2\""));
  EXPECT_FALSE(ParseIds("ids", "1,,2").ok());
}

TEST_F(ClientFlagsTest, ReadsAFileAsItIs) {
  const std::string path = testing::TempDir() + "/prompt";
  std::ofstream(path) << "two\nlines\n";
  Set({"--file=" + path});
  const auto request = ScoreRequestFromFlags();
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->text(), "two\nlines\n");
  std::remove(path.c_str());
  EXPECT_THAT(std::string(ScoreRequestFromFlags().status().message()),
              HasSubstr("cannot be read"));
}

TEST_F(ClientFlagsTest, RefusesAFolder) {
  Set({"--prompt_file=" + testing::TempDir()});
  const absl::Status status = GenerateRequestFromFlags().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be read"));
}

TEST_F(ClientFlagsTest, TakesAnEmptyFile) {
  Set({"--prompt_file=/dev/null"});
  const auto request = GenerateRequestFromFlags();
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->has_text());
}

TEST_F(ClientFlagsTest, RefusesToMixTheTextsOfSeveralOutputs) {
  Set({"--prompt=x", "--num_outputs=2"});
  EXPECT_THAT(std::string(GenerateRequestFromFlags().status().message()),
              HasSubstr("--output=json"));
  Set({"--output=json"});
  EXPECT_TRUE(GenerateRequestFromFlags().ok());
}

TEST_F(ClientFlagsTest, RefusesLogprobsWhereNobodyWouldSeeThem) {
  Set({"--prompt=x", "--logprobs=0"});
  EXPECT_THAT(Error(GenerateRequestFromFlags().status()),
              HasSubstr("--logprobs is set, and a text has no place for them"));
  Set({"--output=json"});
  EXPECT_TRUE(GenerateRequestFromFlags().ok());
}

TEST_F(ClientFlagsTest, HasNothingToScoreInAnEmptyText) {
  Set({"--file=/dev/null"});
  EXPECT_THAT(Error(ScoreRequestFromFlags().status()),
              HasSubstr("--file is empty: there is nothing to score"));
  Set({"--file=", "--text="});
  EXPECT_THAT(Error(ScoreRequestFromFlags().status()),
              HasSubstr("--text is empty"));
}

TEST_F(ClientFlagsTest, WantsOneInput) {
  EXPECT_THAT(std::string(GenerateRequestFromFlags().status().message()),
              HasSubstr("--prompt, --prompt_file and --prompt_ids; 0 are set"));
  Set({"--ids=1", "--text=x"});
  EXPECT_THAT(std::string(ScoreRequestFromFlags().status().message()),
              HasSubstr("2 are set"));
}

TEST_F(ClientFlagsTest, RefusesFlagsOfAnotherCommand) {
  const auto none = [](const char*) -> const char* { return nullptr; };
  const auto status = [&](const std::vector<std::string>& arguments) {
    return ReadCommandLine(ClientProgram(), arguments, none).status();
  };
  EXPECT_THAT(Error(status({"info", "--prompt=x"})),
              HasSubstr("--prompt is a flag of generate, not of info"));
  EXPECT_THAT(Error(status({"generate", "--ids=1"})),
              HasSubstr("--ids is a flag of score"));
  EXPECT_TRUE(status({"score", "--request_id=a", "--server=b:1"}).ok());
}

TEST_F(ClientFlagsTest, RefusesTextsThatAreEmptyOrNotUtf8) {
  Set({"--prompt=x", "--stop="});
  EXPECT_THAT(Error(GenerateRequestFromFlags().status()),
              HasSubstr("--stop is empty"));
  Set({"--stop=y", "--request_id="});
  EXPECT_THAT(Error(GenerateRequestFromFlags().status()),
              HasSubstr("--request_id is empty"));
  Set({"--text=\xff"});
  EXPECT_THAT(Error(ScoreRequestFromFlags().status()),
              HasSubstr("--text is not valid UTF-8"));
}

TEST_F(ClientFlagsTest, RefusesNoServerAndTimesThatAreNone) {
  Set({"--server="});
  EXPECT_THAT(Error(ClientConfigFromFlags().status()),
              HasSubstr("--server is empty"));
  Set({"--server=a:1", "--wait=-1s"});
  EXPECT_THAT(Error(ClientConfigFromFlags().status()),
              HasSubstr("--wait is -1s"));
  Set({"--wait=2s", "--timeout=-1s"});
  EXPECT_THAT(Error(ClientConfigFromFlags().status()),
              HasSubstr("--timeout is -1s"));
}

TEST_F(ClientFlagsTest, TakesAListOfServers) {
  Set({"--server=a:1, b:2,c:3", "--resume_timeout=2s"});
  const auto config = ClientConfigFromFlags();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->servers, ElementsAre("a:1", "b:2", "c:3"));
  EXPECT_TRUE(config->resume.resume);
  EXPECT_EQ(config->resume.patience.count(), 2000);
  Set({"--server=a:1,", "--noresume"});
  EXPECT_THAT(Error(ClientConfigFromFlags().status()),
              HasSubstr("--server is empty"));
}

TEST_F(ClientFlagsTest, GoesOnWithASessionWithOrWithoutAPrompt) {
  Set({"--session=s"});
  auto request = GenerateRequestFromFlags();
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->session().id(), "s");
  EXPECT_EQ(request->input_case(), v1::GenerateRequest::INPUT_NOT_SET);
  EXPECT_FALSE(request->session().has_unchanged());
  EXPECT_FALSE(request->has_save_session());
  Set({"--prompt=x", "--session_unchanged", "--save_session"});
  request = GenerateRequestFromFlags();
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->text(), "x");
  EXPECT_TRUE(request->session().unchanged());
  EXPECT_TRUE(request->save_session());
  Set({"--session="});
  EXPECT_THAT(Error(GenerateRequestFromFlags().status()),
              HasSubstr("--session_unchanged is about a --session"));
}

TEST_F(ClientFlagsTest, MakesTheRequestsAboutSessions) {
  EXPECT_THAT(Error(SessionFromFlags().status()), HasSubstr("set --session"));
  EXPECT_THAT(Error(FileFromFlags().status()), HasSubstr("set --file"));
  EXPECT_THAT(Error(SaveSessionRequestFromFlags().status()),
              HasSubstr("set --request_id"));
  Set({"--session=s", "--count=3", "--request_id=r", "--output_index=2"});
  EXPECT_EQ(ForkSessionRequestFromFlags()->count(), 3u);
  EXPECT_EQ(SaveSessionRequestFromFlags()->request_id(), "r");
  EXPECT_EQ(SaveSessionRequestFromFlags()->output_index(), 2u);
  EXPECT_THAT(Error(PinSessionRequestFromFlags().status()),
              HasSubstr("--time_to_live is 0"));
  Set({"--time_to_live=1h"});
  EXPECT_EQ(PinSessionRequestFromFlags()->time_to_live_seconds(), 3600u);
}

TEST_F(ClientFlagsTest, PutsALineEndBeforeALineOfAChat) {
  Set({"--temperature=0"});
  const auto settings = ChatSettingsFromFlags();
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->prefix, "\n");
  EXPECT_EQ(settings->suffix, "");
  EXPECT_TRUE(settings->request.sampling().has_temperature());
  Set({"--prefix="});
  EXPECT_EQ(ChatSettingsFromFlags()->prefix, "");
}

TEST_F(ClientFlagsTest, EveryCommandSaysInALineWhatItDoes) {
  const Program program = ClientProgram();
  for (const Command& command : program.commands) {
    EXPECT_THAT(command.help,
                HasSubstr("flash-client " + command.name + " [flags]: "));
    EXPECT_THAT(program.usage, HasSubstr("\n  " + command.name + " "));
  }
}

TEST_F(ClientFlagsTest, RefusesAnUnknownOutput) {
  Set({"--output=xml"});
  EXPECT_THAT(std::string(ClientConfigFromFlags().status().message()),
              HasSubstr("--output is \"xml\""));
}

}  // namespace
}  // namespace flash
