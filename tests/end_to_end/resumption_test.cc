// Servers are killed in the middle of streams, and no text is different for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "client/error_text.h"
#include "client/resuming_client.h"
#include "tests/end_to_end/caller.h"
#include "tests/end_to_end/client_process.h"
#include "tests/end_to_end/relay.h"
#include "tests/end_to_end/server_process.h"

namespace flash {
namespace {

using testing::HasSubstr;

constexpr char kDemo[] = "--model=" FLASH_SOURCE_DIR "/deploy/models/demo";
constexpr int kStreams = 16;
constexpr int kTokensBeforeKill = 300;  // of each stream, at least

// Greedy and sampled, with a seed and without; half of them with what has to be
// remembered of the tokens before.
v1::GenerateRequest NumberedRequest(int n) {
  v1::GenerateRequest request;
  std::string text = "Chapter " + std::to_string(n) + ".";
  for (int word = 0; word < 3 * n; ++word) text += " and he said unto them,";
  request.set_text(text);
  request.mutable_sampling()->set_temperature(n % 4 == 0 ? 0.0f : 0.9f);
  if (n % 3 != 0) request.mutable_sampling()->set_seed(100 + n);
  if (n % 2 == 0) {
    request.mutable_sampling()->set_repetition_penalty(1.2f);
    request.mutable_stopping()->add_stop_strings(" the Lord of the rings");
  }
  request.mutable_stopping()->set_max_tokens(1200 + 20 * n);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_response()->set_logprobs(0);
  return request;
}

void ExpectEqual(const Heard& a, const Heard& b) {
  EXPECT_TRUE(a.status.ok()) << ErrorText(a.status);
  EXPECT_TRUE(b.status.ok()) << ErrorText(b.status);
  EXPECT_TRUE(a.in_order && b.in_order);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.logprobs, b.logprobs);  // floats: the same or not
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.reason, b.reason);
  EXPECT_EQ(a.usage.completion_tokens(), b.usage.completion_tokens());
  EXPECT_EQ(a.usage.prior_tokens(), b.usage.prior_tokens());
}

// A stream that may be cut off, heard from a thread of its own.
class CutStream {
 public:
  CutStream(const std::vector<std::string>& addresses,
            const v1::GenerateRequest& request)
      : thread_([this, addresses, request] {
          ResumingClient client(addresses);
          CancellableCall call;
          heard_.status = client.Generate(
              request, call,
              [this](const v1::GenerateEvent& event) {
                heard_.Take(event);
                num_heard_ = heard_.ids.size();
              },
              [this](const Resumption&) { ++num_resumptions_; });
          is_over_ = true;
        }) {}

  // False if it has ended before.
  bool WaitForTokens(size_t count) {
    while (num_heard_ < count && !is_over_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return num_heard_ >= count;
  }
  const Heard& ToTheEnd() {
    thread_.join();
    return heard_;
  }
  int num_resumptions() const { return num_resumptions_; }

 private:
  Heard heard_;
  std::atomic<size_t> num_heard_{0};
  std::atomic<int> num_resumptions_{0};
  std::atomic<bool> is_over_{false};
  std::thread thread_;  // the last: it uses the others
};

class ResumptionTest : public testing::Test {
 protected:
  std::unique_ptr<ServerProcess> Start(std::vector<std::string> flags = {}) {
    flags.insert(flags.end(), {kDemo, "--slots=16"});
    auto server = std::make_unique<ServerProcess>(flags);
    EXPECT_TRUE(server->WaitUntilServing()) << server->Errors();
    return server;
  }

  // Kills the first of two servers with these flags, compares each stream with
  // one that nothing happened to, and returns how many tokens the second one
  // had to read to go on.
  uint64_t KillInTheMiddle(const std::vector<std::string>& flags,
                           const std::function<void()>& before_kill) {
    const auto first = Start(flags);
    const auto second = Start(flags);
    std::vector<std::unique_ptr<CutStream>> streams;
    for (int n = 0; n < kStreams; ++n) {
      streams.push_back(std::make_unique<CutStream>(
          std::vector<std::string>{first->address(), second->address()},
          NumberedRequest(n)));
    }
    for (auto& stream : streams) {
      EXPECT_TRUE(stream->WaitForTokens(kTokensBeforeKill));
    }
    before_kill();
    first->Signal(SIGKILL);
    std::vector<Heard> heard;
    for (auto& stream : streams) heard.push_back(stream->ToTheEnd());
    Caller caller(second->address());
    const uint64_t tokens_read = caller.Load().prompt_tokens();
    for (int n = 0; n < kStreams; ++n) {
      SCOPED_TRACE(n);
      EXPECT_GE(streams[n]->num_resumptions(), 1);
      v1::GenerateRequest request = NumberedRequest(n);
      request.mutable_sampling()->set_seed(heard[n].seed);
      ExpectEqual(heard[n], caller.Generate(request));
    }
    return tokens_read;
  }
};

int NumCheckpointFiles(const std::string& directory) {
  int count = 0;
  std::error_code error;  // files come and go
  for (std::filesystem::recursive_directory_iterator file(directory, error),
       end;
       !error && file != end; file.increment(error)) {
    if (file->path().string().find("/checkpoints-") != std::string::npos) {
      ++count;
    }
  }
  return count - 1;  // the folder itself
}

TEST_F(ResumptionTest, SixteenStreamsOutliveTheirServer) {
  KillInTheMiddle({}, [] {});
}

TEST_F(ResumptionTest, SixteenStreamsGoOnFromTheirCheckpoints) {
  TemporaryDirectory directory;
  // A slow disk may be behind: until there are a head and a body of each.
  const auto wait_for_checkpoints = [&] {
    for (int tries = 0; tries < 1000; ++tries) {
      if (NumCheckpointFiles(directory.path()) >= 2 * kStreams) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  const uint64_t with =
      KillInTheMiddle({"--session_store=dir:" + directory.path(),
                       "--checkpoint_every_tokens=64"},
                      wait_for_checkpoints);
  RecordProperty("tokens_read", std::to_string(with));
  // Each has had so many tokens, and would have to read as many without.
  EXPECT_LT(with, uint64_t{kStreams * kTokensBeforeKill});
}

TEST_F(ResumptionTest, SessionsThatWereClaimedGoOn) {
  constexpr int kSessions = 4;
  TemporaryDirectory directory;
  const std::string store = "--session_store=dir:" + directory.path();
  const auto first = Start({store});
  const auto second = Start({store});
  Caller caller(second->address());
  v1::GenerateRequest begin = NumberedRequest(5);
  begin.mutable_stopping()->set_max_tokens(40);
  begin.set_save_session(true);
  // Each twice: what is cut off, and what it is compared with.
  std::vector<std::string> ids;
  for (int n = 0; n < 2 * kSessions; ++n) {
    const Heard heard = caller.Generate(begin);
    ASSERT_TRUE(heard.status.ok()) << ErrorText(heard.status);
    ids.push_back(heard.session.id());
  }
  const auto request = [&](int n) {
    v1::GenerateRequest next = NumberedRequest(n);
    next.set_text(" And he said,");
    next.mutable_session()->set_id(ids[n]);
    return next;
  };
  std::vector<std::unique_ptr<CutStream>> streams;
  for (int n = 0; n < kSessions; ++n) {
    streams.push_back(std::make_unique<CutStream>(
        std::vector<std::string>{first->address(), second->address()},
        request(n)));
  }
  for (auto& stream : streams) EXPECT_TRUE(stream->WaitForTokens(30));
  first->Signal(SIGKILL);
  for (int n = 0; n < kSessions; ++n) {
    SCOPED_TRACE(n);
    const Heard& heard = streams[n]->ToTheEnd();
    EXPECT_EQ(streams[n]->num_resumptions(), 1);
    EXPECT_EQ(heard.session.id(), ids[n]);
    v1::GenerateRequest undisturbed = request(n);
    undisturbed.mutable_session()->set_id(ids[kSessions + n]);
    undisturbed.mutable_sampling()->set_seed(heard.seed);
    const Heard whole = caller.Generate(undisturbed);
    ExpectEqual(heard, whole);
    EXPECT_EQ(heard.session.num_tokens(), whole.session.num_tokens());
  }
}

// The session has been written when the connection is cut, and the end of the
// answer has not arrived.
TEST_F(ResumptionTest, AnAnswerWhoseEndWasLostIsWhole) {
  TemporaryDirectory directory;
  const std::string store = "--session_store=dir:" + directory.path();
  const auto first = Start({store});
  const auto second = Start({store});
  Caller caller(second->address());
  v1::GenerateRequest begin = NumberedRequest(5);
  begin.mutable_stopping()->set_max_tokens(40);
  begin.set_save_session(true);
  for (const size_t num_told : {size_t{1}, size_t{70}, size_t{200}}) {
    SCOPED_TRACE(num_told);
    std::string ids[2];  // of what is cut, and of what it is compared with
    for (std::string& id : ids) id = caller.Generate(begin).session.id();
    const auto request = [&](const std::string& id, uint64_t max_tokens) {
      v1::GenerateRequest next = NumberedRequest(1);
      next.set_text(" And he said,");
      next.mutable_session()->set_id(id);
      next.mutable_stopping()->set_max_tokens(max_tokens);
      return next;
    };
    Relay relay(first->address());
    CutStream stream({relay.address(), second->address()},
                     request(ids[0], 700));
    ASSERT_TRUE(stream.WaitForTokens(num_told));
    relay.Swallow();
    v1::GetSessionRequest get;
    get.set_id(ids[0]);
    v1::Session session;
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      grpc::ClientContext context;
      ASSERT_TRUE(caller.sessions().Get(&context, get, &session).ok());
    } while (session.num_tokens() < 700);
    relay.Cut();
    const Heard& heard = stream.ToTheEnd();
    EXPECT_EQ(stream.num_resumptions(), 1);
    v1::GenerateRequest undisturbed = request(ids[1], 700);
    undisturbed.mutable_sampling()->set_seed(heard.seed);
    const Heard whole = caller.Generate(undisturbed);
    ExpectEqual(heard, whole);
    EXPECT_EQ(heard.session.num_tokens(), whole.session.num_tokens());
    EXPECT_EQ(heard.session.num_tokens(), session.num_tokens());
    ExpectEqual(caller.Generate(request(ids[0], 20)),
                caller.Generate(request(ids[1], 20)));
  }
}

TEST_F(ResumptionTest, AStreamGoesOnAtTheServerThatComesBack) {
  auto server = Start();
  const std::string address = server->address();
  v1::GenerateRequest request = NumberedRequest(3);
  request.mutable_stopping()->set_max_tokens(3000);
  CutStream stream({address}, request);
  ASSERT_TRUE(stream.WaitForTokens(100));
  server->Signal(SIGKILL);
  server->Wait();
  ServerProcess again({kDemo, "--listen=" + address});
  ASSERT_TRUE(again.WaitUntilServing()) << again.Errors();
  const Heard& heard = stream.ToTheEnd();
  EXPECT_GE(stream.num_resumptions(), 1);
  request.mutable_sampling()->set_seed(heard.seed);
  ExpectEqual(heard, Caller(address).Generate(request));
}

TEST_F(ResumptionTest, TheClientGoesOnAndSaysSo) {
  const auto first = Start();
  const auto second = Start();
  const std::vector<std::string> arguments = {"generate", "--prompt=Behold",
                                              "--max_tokens=3000",
                                              "--ignore_eos", "--seed=5"};
  const auto with = [&](const std::string& flag) {
    std::vector<std::string> all = arguments;
    all.push_back(flag);
    return all;
  };
  ClientProcess whole(with("--server=" + second->address()));
  EXPECT_EQ(whole.Wait(), 0) << whole.Errors();
  ClientProcess cut(
      with("--server=" + first->address() + "," + second->address()));
  ASSERT_TRUE(cut.WaitForOutput(200));
  first->Signal(SIGKILL);
  EXPECT_EQ(cut.Wait(), 0) << cut.Errors();
  EXPECT_EQ(cut.Output(), whole.Output());
  EXPECT_THAT(cut.Errors(), testing::MatchesRegex(
                                "flash-client: resumed at token [0-9]+ on " +
                                second->address() + " after: .*\n"));
}

TEST_F(ResumptionTest, TheClientFailsInsteadIfItIsToldTo) {
  const auto server = Start();
  ClientProcess client({"generate", "--prompt=Behold", "--max_tokens=9000",
                        "--ignore_eos", "--noresume",
                        "--server=" + server->address()});
  ASSERT_TRUE(client.WaitForOutput(200));
  server->Signal(SIGKILL);
  EXPECT_EQ(client.Wait(), 1);
  EXPECT_THAT(client.Errors(), HasSubstr("flash-client: UNAVAILABLE"));
}

TEST_F(ResumptionTest, ServersThatCountOtherwiseDoNotGoOn) {
  const auto first = Start();
  ServerProcess second({kDemo, "--weights=int8"});
  ASSERT_TRUE(second.WaitUntilServing()) << second.Errors();
  CutStream stream({first->address(), second.address()}, NumberedRequest(1));
  ASSERT_TRUE(stream.WaitForTokens(30));
  first->Signal(SIGKILL);
  const Heard& heard = stream.ToTheEnd();
  EXPECT_EQ(heard.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(heard.status.error_message(), HasSubstr("weights=int8"));
}

}  // namespace
}  // namespace flash
