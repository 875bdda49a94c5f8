// Flags from the environment, from files and from the command line.

#include "server/command_line/command_line.h"

#include <cstdio>
#include <fstream>
#include <map>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gmock/gmock.h"

ABSL_FLAG(int32_t, test_number, 5, "Things. A second sentence.");
ABSL_FLAG(std::string, test_word, "word", "A word.");
ABSL_FLAG(bool, test_switch, false, "On or off.");
ABSL_FLAG(bool, test_sail, false, "sail, row: the boat's.");
ABSL_FLAG(bool, test_lamp, false, "dive: a light.");
ABSL_FLAG(bool, test_map, false, "dive far, row: where to.");

namespace flash {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class CommandLineTest : public testing::Test {
 protected:
  absl::StatusOr<CommandLine> Read(const std::vector<std::string>& arguments) {
    return ReadCommandLine(program_, arguments, [this](const char* name) {
      const auto found = environment_.find(name);
      return found == environment_.end() ? nullptr : found->second.c_str();
    });
  }
  std::string Error(const std::vector<std::string>& arguments) {
    const auto line = Read(arguments);
    EXPECT_TRUE(absl::IsInvalidArgument(line.status()));
    return std::string(line.status().message());
  }

  static std::vector<Command> Commands() {
    return {{"sail", "Sails."},
            {"row", "Rows."},
            {"swim", "Swims."},
            {"dive deep", "Dives deep."},
            {"dive far", "Dives far."}};
  }

  const absl::FlagSaver saver_;
  Program program_ = {"test", "test [flags]", __FILE__};
  std::map<std::string, std::string> environment_;
};

TEST_F(CommandLineTest, LeavesTheDefaults) {
  ASSERT_TRUE(Read({}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_number), 5);
}

TEST_F(CommandLineTest, TakesTheEnvironmentAndLetsTheCommandLineWin) {
  environment_ = {{"FLASH_TEST_NUMBER", "6"}, {"FLASH_TEST_WORD", "env"}};
  ASSERT_TRUE(Read({"--test_word=line"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_number), 6);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_word), "line");
}

TEST_F(CommandLineTest, TakesEveryWayToWriteAFlag) {
  const auto line = Read({"first", "-test_number", "7", "--test_switch",
                          "--test_word=a=b", "-", "--", "--test_number=9"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(absl::GetFlag(FLAGS_test_number), 7);
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_switch));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_word), "a=b");
  EXPECT_THAT(line->arguments, ElementsAre("first", "-", "--test_number=9"));
  ASSERT_TRUE(Read({"--notest_switch"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_test_switch));
}

TEST_F(CommandLineTest, NamesWhatIsWrong) {
  EXPECT_THAT(Error({"--no_such_flag=1"}),
              HasSubstr("--no_such_flag is not a flag of test"));
  EXPECT_THAT(Error({"--test_number=x"}), HasSubstr("--test_number is \"x\""));
  EXPECT_THAT(Error({"--test_number"}), HasSubstr("needs a value"));
  EXPECT_THAT(Error({"--flagfile=/no/such/file"}), HasSubstr("/no/such/file"));
  environment_ = {{"FLASH_TEST_NUMBER", "many"}};
  EXPECT_THAT(Error({}), HasSubstr("FLASH_TEST_NUMBER is \"many\""));
}

TEST_F(CommandLineTest, DoesNotKnowFlagsOfLibraries) {
  ASSERT_NE(absl::FindCommandLineFlag("gtest_filter"),
            absl::FindCommandLineFlag("test_word"));
  EXPECT_THAT(HelpText(program_), Not(HasSubstr("flagfile=\n")));
  EXPECT_THAT(Error({"--undefok=x"}), HasSubstr("not a flag"));
}

TEST_F(CommandLineTest, ReadsAFlagFileWhereItStands) {
  const std::string path = testing::TempDir() + "/flags";
  std::ofstream(path) << "# a comment\n\n--test_number=8\n"
                      << "  --test_word=file\n";
  ASSERT_TRUE(Read({"--flagfile=" + path, "--test_number=9"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_number), 9);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_word), "file");
  std::ofstream(path) << "--flagfile=" << path << "\n";
  EXPECT_THAT(Error({"--flagfile=" + path}), HasSubstr("too deeply"));
  std::remove(path.c_str());
}

TEST_F(CommandLineTest, ReadsTheFlagFileOfTheEnvironmentFirst) {
  const std::string path = testing::TempDir() + "/environment_flags";
  std::ofstream(path) << "--test_number=8\n--test_word=file\n--test_switch\n";
  environment_ = {{"FLASH_FLAGFILE", path}, {"FLASH_TEST_WORD", "variable"}};
  ASSERT_TRUE(Read({"--test_number=9"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_number), 9);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_word), "variable");
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_switch));
  std::remove(path.c_str());
  EXPECT_THAT(Error({}), HasSubstr("FLASH_FLAGFILE is \"" + path));
}

TEST_F(CommandLineTest, RefusesAFolderAsAFlagFile) {
  EXPECT_THAT(Error({"--flagfile=" + testing::TempDir()}),
              HasSubstr("cannot be read"));
}

TEST_F(CommandLineTest, WantsOneCommand) {
  program_.commands = Commands();
  EXPECT_TRUE(Read({"row"}).ok());
  EXPECT_TRUE(Read({"--help"}).ok());
  EXPECT_THAT(Error({}),
              HasSubstr("one of sail, row, swim, dive deep, dive far"));
  EXPECT_THAT(Error({"fly"}), HasSubstr("\"fly\" is not a command"));
  EXPECT_THAT(Error({"row", "faster"}),
              HasSubstr("\"faster\" is not understood"));
}

TEST_F(CommandLineTest, RefusesFlagsOfOtherCommands) {
  program_.commands = Commands();
  EXPECT_TRUE(Read({"row", "--test_sail", "--test_number=1"}).ok());
  EXPECT_THAT(Error({"swim", "--test_sail"}),
              HasSubstr("--test_sail is a flag of sail and row, not of swim"));
  EXPECT_THAT(Error({"swim", "--notest_sail"}), HasSubstr("not of swim"));
  environment_ = {{"FLASH_TEST_SAIL", "true"}};
  EXPECT_TRUE(Read({"swim"}).ok());
}

TEST_F(CommandLineTest, TakesCommandsOfTwoWords) {
  program_.commands = Commands();
  const auto line = Read({"dive", "--test_number=1", "deep", "--test_lamp"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->arguments, ElementsAre("dive", "deep"));
  EXPECT_THAT(Error({"dive"}),
              HasSubstr("\"dive\" is not all: one of dive deep, dive far"));
  EXPECT_THAT(Error({"dive", "low"}),
              HasSubstr("\"dive low\" is not a command; it must be one of dive "
                        "deep, dive far"));
  EXPECT_THAT(Error({"dive", "deep", "now"}),
              HasSubstr("\"now\" is not understood: after dive deep"));
  EXPECT_THAT(Error({"swim", "--test_lamp"}),
              HasSubstr("--test_lamp is a flag of dive, not of swim"));
  EXPECT_THAT(Error({"dive", "deep", "--test_map"}),
              HasSubstr("--test_map is a flag of dive far and row, not of"));
}

TEST_F(CommandLineTest, ExplainsWhatACommandDoesAndTakes) {
  program_.commands = Commands();
  const std::string one = HelpText(program_, {"dive", "deep"});
  EXPECT_THAT(one, StartsWith("Dives deep.\n\nFlags:\n"));
  EXPECT_THAT(one, HasSubstr("--test_lamp"));
  EXPECT_THAT(one, HasSubstr("--test_number"));
  EXPECT_THAT(one, Not(HasSubstr("--test_map")));
  EXPECT_THAT(one, Not(HasSubstr("Dives far.")));
  const std::string both = HelpText(program_, {"dive"});
  EXPECT_THAT(both, StartsWith("Dives deep.\n\nDives far.\n\nFlags:\n"));
  EXPECT_THAT(both, HasSubstr("--test_map"));
  EXPECT_THAT(HelpText(program_, {"fly"}), StartsWith("test [flags]"));
}

TEST_F(CommandLineTest, TellsItsVersionWithoutACommand) {
  program_.commands = Commands();
  const auto line = Read({"--version"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_TRUE(line->wants_version);
  EXPECT_THAT(HelpText(program_), HasSubstr("--version\n"));
}

TEST_F(CommandLineTest, TellsVariablesThatSetNothing) {
  EXPECT_THAT(
      UnknownVariables(program_, {"PATH", "FLASH_TEST_NUMBER", "FLASH_FLAGFILE",
                                  "FLASH_TEST_NUMBR", "FLASH_", "NO_FLASH_X"}),
      ElementsAre("FLASH_TEST_NUMBR", "FLASH_"));
}

TEST_F(CommandLineTest, PassesOverWhatKubernetesSaysOfServices) {
  EXPECT_THAT(
      UnknownVariables(
          program_, {"FLASH_SERVER_PORT", "FLASH_SERVER_PORT_8500_TCP",
                     "FLASH_SERVER_PORT_8500_TCP_ADDR",
                     "FLASH_SERVER_SERVICE_HOST", "FLASH_SERVER_SERVICE_PORT",
                     "FLASH_SERVER_SERVICE_PORT_GRPC", "FLASH_SERVER_PORTS",
                     "FLASH_OTHER_PORT", "FLASH_SERVICE_HOST", "FLASH_PORT"}),
      ElementsAre("FLASH_SERVER_PORTS", "FLASH_OTHER_PORT"));
}

TEST_F(CommandLineTest, ExplainsEachFlagWithItsDefault) {
  const auto line = Read({"--help"});
  ASSERT_TRUE(line.ok());
  EXPECT_TRUE(line->wants_help);
  const std::string help = HelpText(program_);
  EXPECT_THAT(help, HasSubstr("test [flags]"));
  EXPECT_THAT(help, HasSubstr("--test_number=5\n      Things."));
  EXPECT_THAT(help, HasSubstr("FLASH_NAME"));
}

}  // namespace
}  // namespace flash
