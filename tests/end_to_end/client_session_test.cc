// What people do with sessions, by the programs that they have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/end_to_end/client_process.h"
#include "tests/end_to_end/server_process.h"

namespace flash {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kDemo[] = "--model=" FLASH_SOURCE_DIR "/deploy/models/demo";

class ClientSessionTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(server_.WaitUntilServing()) << server_.Errors();
  }

  std::vector<std::string> WithServer(std::vector<std::string> arguments) {
    arguments.push_back("--server=" + server_.address());
    return arguments;
  }

  // What the client prints; it must succeed.
  std::string Run(const std::vector<std::string>& arguments,
                  const std::string& input = "") {
    ClientProcess client(WithServer(arguments), input);
    EXPECT_EQ(client.Wait(), 0) << client.Errors();
    errors_ = client.Errors();
    return client.Output();
  }
  // What it complains of.
  std::string Error(const std::vector<std::string>& arguments) {
    ClientProcess client(WithServer(arguments));
    EXPECT_EQ(client.Wait(), 1) << client.Output();
    return client.Errors();
  }

  // The objects that the client prints, one a line.
  std::vector<json> Objects(std::vector<std::string> arguments) {
    arguments.push_back("--output=json");
    std::vector<json> objects;
    std::istringstream lines(Run(arguments));
    for (std::string line; std::getline(lines, line);) {
      objects.push_back(json::parse(line));
    }
    EXPECT_FALSE(objects.empty()) << errors_;
    if (objects.empty()) objects.push_back(json::object());
    return objects;
  }

  // The id that generate says on stderr.
  std::string NamedSession() const {
    const std::string mark = "session ";
    const size_t begin = errors_.find(mark);
    if (begin == std::string::npos) return "";
    return errors_.substr(
        begin + mark.size(),
        errors_.find(' ', begin + mark.size()) - begin - mark.size());
  }

  static std::string WithoutLineEnd(std::string text) {
    EXPECT_EQ(text.back(), '\n');
    text.pop_back();
    return text;
  }

  TemporaryDirectory directory_;
  ServerProcess server_{{kDemo}};
  std::string errors_;
};

TEST_F(ClientSessionTest, ATextInTwoPartsIsTheTextInOne) {
  const std::vector<std::string> prompt = {"generate", "--prompt=Behold",
                                           "--seed=3", "--ignore_eos"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), prompt.begin(), prompt.end());
    return more;
  };
  const std::string whole = Run(with({"--max_tokens=90"}));
  const std::string begin = Run(with({"--max_tokens=50", "--save_session"}));
  const std::string session = NamedSession();
  ASSERT_NE(session, "");
  const std::string rest = Run(
      {"generate", "--session=" + session, "--max_tokens=40", "--ignore_eos"});
  EXPECT_EQ(NamedSession(), session);
  EXPECT_EQ(WithoutLineEnd(begin) + rest, whole);
}

TEST_F(ClientSessionTest, ManyQuestionsAreAskedOfADocumentThatWasReadOnce) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "And the evening was the first day. ";
  directory_.Write("book", text);
  Run({"generate", "--prompt_file=" + directory_.path() + "/book",
       "--max_tokens=0", "--save_session"});
  const std::string book = NamedSession();
  const auto forks =
      Objects({"session", "fork", "--session=" + book, "--count=3"});
  ASSERT_EQ(forks.size(), 3u);
  const auto ask = [&](const std::string& session) {
    return Run({"generate", "--session=" + session, "--prompt=And God said",
                "--seed=8", "--max_tokens=20"});
  };
  const std::string answer = ask(forks[0]["id"]);
  EXPECT_EQ(ask(forks[1]["id"]), answer);
  // The same without a fork, as the book stays as it is.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Run({"generate", "--session=" + book, "--session_unchanged",
                   "--prompt=And God said", "--seed=8", "--max_tokens=20"}),
              answer);
  }
  const auto tokens = [&](const std::string& session) {
    return Objects({"session", "get", "--session=" + session})[0]["num_tokens"];
  };
  EXPECT_EQ(tokens(book), tokens(forks[2]["id"]));
  EXPECT_GT(tokens(forks[0]["id"]), tokens(book));
  EXPECT_EQ(Objects({"session", "list"}).size(), 4u);
}

TEST_F(ClientSessionTest, AFileTakesASessionFromOneServerToAnother) {
  Run({"generate", "--prompt=Behold", "--seed=3", "--max_tokens=50",
       "--ignore_eos", "--save_session"});
  const std::string session = NamedSession();
  const std::string file = "--file=" + directory_.path() + "/talk";
  EXPECT_THAT(Run({"session", "export", "--session=" + session, file}),
              HasSubstr("wrote "));
  const std::vector<std::string> go_on = {"generate", "--max_tokens=40",
                                          "--ignore_eos"};
  const auto with = [&](const std::string& id) {
    std::vector<std::string> all = go_on;
    all.push_back("--session=" + id);
    return all;
  };
  const std::string rest = Run(with(session));

  ServerProcess other({kDemo});
  ASSERT_TRUE(other.WaitUntilServing()) << other.Errors();
  const std::string server = "--server=" + other.address();
  ClientProcess import({"session", "import", file, server, "--output=json"});
  ASSERT_EQ(import.Wait(), 0) << import.Errors();
  std::vector<std::string> arguments = with(json::parse(import.Output())["id"]);
  arguments.push_back(server);
  ClientProcess client(arguments);
  EXPECT_EQ(client.Wait(), 0) << client.Errors();
  EXPECT_EQ(client.Output(), rest);

  // Cut off, it is refused.
  std::filesystem::resize_file(
      directory_.path() + "/talk",
      std::filesystem::file_size(directory_.path() + "/talk") - 1);
  EXPECT_THAT(Error({"session", "import", file}), HasSubstr("DATA_LOSS"));
}

TEST_F(ClientSessionTest, SessionsAreSavedByRequestPinnedAndDeleted) {
  Run({"generate", "--prompt=Behold", "--max_tokens=9", "--request_id=mine"});
  const json saved = Objects({"session", "save", "--request_id=mine"})[0];
  const std::string flag = "--session=" + saved["id"].get<std::string>();
  const json pinned =
      Objects({"session", "pin", flag, "--time_to_live=100h"})[0];
  EXPECT_GT(pinned["expires_ms"], saved["expires_ms"]);
  EXPECT_THAT(Run({"session", "list"}),
              HasSubstr("\n" + saved["id"].get<std::string>()));
  Run({"session", "delete", flag});
  EXPECT_THAT(Error({"session", "get", flag}), HasSubstr("NOT_FOUND"));
  EXPECT_THAT(Error({"generate", flag}), HasSubstr("SESSION_NOT_FOUND"));
}

TEST_F(ClientSessionTest, AChatInAPipeAnswersLineAfterLine) {
  const std::vector<std::string> chat = {"chat", "--max_tokens=12", "--seed=1",
                                         "--ignore_eos"};
  const std::string both = Run(chat, "In the beginning God\nAnd Moses said\n");
  const size_t at = errors_.find("--session=");
  ASSERT_NE(at, std::string::npos) << errors_;
  EXPECT_THAT(errors_, HasSubstr("go on with: flash-client chat --server=" +
                                 server_.address()));

  // The same in two chats, one after the other.
  const std::string first = Run(chat, "In the beginning God\n");
  const size_t begin = errors_.find("--session=");
  ASSERT_NE(begin, std::string::npos) << errors_;
  std::vector<std::string> again = chat;
  again.push_back(errors_.substr(begin, errors_.find('\n', begin) - begin));
  EXPECT_EQ(first + Run(again, "And Moses said\n"), both);
}

TEST_F(ClientSessionTest, ACancelledAnswerWasNeverGiven) {
  Run({"generate", "--prompt=Behold", "--max_tokens=9", "--save_session"});
  const std::string flag = "--session=" + NamedSession();
  const json before = Objects({"session", "get", flag})[0];
  ClientProcess chat(
      WithServer({"chat", flag, "--max_tokens=100000", "--ignore_eos"}),
      "And he said\n");
  ASSERT_TRUE(chat.WaitForOutput(100));
  EXPECT_EQ(Objects({"session", "get", flag})[0]["in_use"], true);
  chat.Signal(SIGINT);
  EXPECT_EQ(chat.Wait(), 1);
  EXPECT_THAT(chat.Errors(), HasSubstr("CANCELLED"));
  EXPECT_THAT(chat.Errors(), HasSubstr("go on with"));
  json after = Objects({"session", "get", flag})[0];
  while (after["in_use"]) after = Objects({"session", "get", flag})[0];
  EXPECT_EQ(after["num_tokens"], before["num_tokens"]);
  Run({"generate", flag, "--prompt=And", "--max_tokens=5"});
}

}  // namespace
}  // namespace flash
