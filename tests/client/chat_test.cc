#include "client/chat.h"

#include "client/error_text.h"
#include "gmock/gmock.h"
#include "tests/client/scripted_server.h"

namespace flash {
namespace {

using testing::SizeIs;

class ChatTest : public testing::Test {
 protected:
  Chat MakeChat(const std::string& session = "") {
    ChatSettings settings;
    settings.session = session;
    settings.prefix = "\nQ: ";
    settings.suffix = "\nA:";
    settings.request.mutable_stopping()->set_max_tokens(3);
    return Chat(settings, &client_);
  }
  grpc::Status Say(Chat& chat, const std::string& line) {
    CancellableCall call;
    return chat.Say(
        line, call, [](v1::GenerateEvent&) {}, [](const Resumption&) {});
  }
  void ExpectAnswer(Chat& chat, const std::string& line) {
    const grpc::Status status = Say(chat, line);
    EXPECT_TRUE(status.ok()) << ErrorText(status);
  }

  ScriptedServer server_;
  ResumingClient client_{{server_.address()}};
};

TEST_F(ChatTest, MakesASessionOfTheFirstLineAndAppendsTheOthers) {
  Chat chat = MakeChat();
  EXPECT_EQ(chat.session(), "");
  ExpectAnswer(chat, "one");
  EXPECT_EQ(chat.session(), "session-1");
  ExpectAnswer(chat, "two");
  const auto requests = server_.requests();
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_EQ(requests[0].text(), "Q: one\nA:");  // nothing stands before it
  EXPECT_FALSE(requests[0].has_session());
  EXPECT_TRUE(requests[0].save_session());
  EXPECT_EQ(requests[1].text(), "\nQ: two\nA:");
  EXPECT_EQ(requests[1].session().id(), "session-1");
  EXPECT_EQ(requests[1].stopping().max_tokens(), 3u);
}

TEST_F(ChatTest, GoesOnWithASessionThatWas) {
  Chat chat = MakeChat("older");
  ExpectAnswer(chat, "three");
  EXPECT_EQ(server_.requests()[0].session().id(), "older");
  EXPECT_EQ(server_.requests()[0].text(), "\nQ: three\nA:");
}

TEST_F(ChatTest, LetsTheLastAnswerGoOnAfterAnEmptyLine) {
  Chat chat = MakeChat();
  EXPECT_EQ(Say(chat, "").error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(server_.requests(), SizeIs(0));
  ExpectAnswer(chat, "one");
  ExpectAnswer(chat, "");
  EXPECT_FALSE(server_.requests()[1].has_text());
  EXPECT_EQ(server_.requests()[1].session().id(), "session-1");
}

TEST_F(ChatTest, ALineThatFailedWasNeverSaid) {
  Chat chat = MakeChat();
  server_.Play({{.cut_before = 2,
                 .status = ServerError(grpc::StatusCode::INVALID_ARGUMENT,
                                       "INVALID_REQUEST")}});
  EXPECT_FALSE(Say(chat, "one").ok());
  EXPECT_EQ(chat.session(), "");
  ExpectAnswer(chat, "two");
  EXPECT_EQ(server_.requests()[1].text(), "Q: two\nA:");
}

TEST_F(ChatTest, AnAnswerThatIsCutOffGoesOn) {
  Chat chat = MakeChat();
  ExpectAnswer(chat, "one");
  server_.Play({{.cut_before = 2,
                 .status = {grpc::StatusCode::UNAVAILABLE, "gone"},
                 .session_epoch = 8}});
  ExpectAnswer(chat, "two");
  const auto requests = server_.requests();
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_EQ(requests[2].text(), "\nQ: two\nA:");
  EXPECT_EQ(requests[2].session().takeover_epoch(), 8u);
  EXPECT_EQ(requests[2].prior_output_ids(0).ids_size(), 1);
}

}  // namespace
}  // namespace flash
