// Sessions over a real connection: what is saved goes on, what others have is
// not there, and nothing is left held.

#include "server/service/sessions_service.h"

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "tests/server/service/sessions_fixture.h"

namespace flash {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

TEST_F(SessionsServiceTest, GoesOnAsIfTheTextHadBeenWrittenInOneGo) {
  Start();
  const auto whole = Stream(TextRequest("prompt", 30));
  for (const uint64_t first : {0, 1, 2, 7, 8, 9, 29}) {
    SCOPED_TRACE(first);
    const auto begin = Stream(Saved(TextRequest("prompt", first)));
    ASSERT_TRUE(begin.status.ok()) << begin.status.error_message();
    const auto rest = Stream(GoOn(begin.SessionId(), 30 - first));
    ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
    EXPECT_EQ(Joined(begin.Ids(), rest.Ids()), whole.Ids());
    EXPECT_EQ(begin.Text() + rest.Text(), whole.Text());
    EXPECT_EQ(rest.SessionId(), begin.SessionId());
    EXPECT_EQ(rest.events.front().accepted().seed(), 17u);
    EXPECT_EQ(rest.events.front().accepted().session_epoch(), 1u);
  }
}

TEST_F(SessionsServiceTest, SaysWhatASessionIs) {
  Start();
  auto request = Saved(TextRequest("prompt", 5));
  request.set_request_id("writer");
  const auto answer = Stream(request);
  v1::Session session;
  ASSERT_TRUE(Get(answer.SessionId(), &session).ok());
  EXPECT_EQ(session.SerializeAsString(),
            answer.events.back().finished().session().SerializeAsString());
  EXPECT_EQ(session.num_tokens(), 1 + 6 + 5u);  // with BOS
  EXPECT_EQ(session.last_request_id(), "writer");
  EXPECT_GT(session.num_bytes(), 0u);
  EXPECT_GT(session.expires_ms(), session.used_ms());
  EXPECT_FALSE(session.in_use());
}

TEST_F(SessionsServiceTest, AppendsTextWithoutBos) {
  Start();
  const auto begin = Stream(Saved(TextRequest("one ", 4)));
  auto request = GoOn(begin.SessionId(), 6);
  request.set_text("two");
  request.mutable_sampling()->set_seed(5);
  const auto rest = Stream(request);
  ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
  EXPECT_EQ(rest.events.back().usage().prompt_tokens(), 3u);

  v1::GenerateRequest ids;
  ids.mutable_token_ids()->add_ids(kBos);
  for (const char c : "one " + begin.Text() + "two") {
    ids.mutable_token_ids()->add_ids(static_cast<unsigned char>(c));
  }
  ids.mutable_sampling()->set_seed(5);
  ids.mutable_stopping()->set_max_tokens(6);
  EXPECT_EQ(rest.Ids(), Stream(ids).Ids());
}

TEST_F(SessionsServiceTest, LeavesASessionThatIsUnchangedAsItWas) {
  Start();
  const auto begin = Stream(Saved(TextRequest("prompt", 4)));
  auto request = GoOn(begin.SessionId(), 6);
  request.mutable_session()->set_unchanged(true);
  const auto once = Stream(request);
  const auto twice = Stream(request);
  EXPECT_THAT(once.Ids(), SizeIs(6));
  EXPECT_EQ(once.Ids(), twice.Ids());
  EXPECT_EQ(once.SessionId(), "");
  v1::Session session;
  ASSERT_TRUE(Get(begin.SessionId(), &session).ok());
  EXPECT_EQ(session.num_tokens(), 11u);
  EXPECT_EQ(session.epoch(), 0u);
}

TEST_F(SessionsServiceTest, AUnaryCallNamesTheSessionOfEachOutput) {
  Start();
  auto request = Saved(TextRequest("prompt", 4));
  request.mutable_sampling()->set_num_outputs(3);
  auto whole = TextRequest("prompt", 10);
  whole.mutable_sampling()->set_num_outputs(3);
  v1::GenerateResult begin;
  const grpc::Status status = Unary(request, &begin);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto all = Stream(whole);
  for (const uint32_t i : {0u, 1u, 2u}) {
    SCOPED_TRACE(i);
    v1::GenerateResult rest;
    ASSERT_TRUE(Unary(GoOn(begin.outputs(i).session().id(), 6), &rest).ok());
    EXPECT_EQ(begin.outputs(i).text() + rest.outputs(0).text(), all.Text(i));
    EXPECT_EQ(rest.outputs(0).session().id(), begin.outputs(i).session().id());
  }
}

TEST_F(SessionsServiceTest, ForksGoOnEachWithItsSeed) {
  Start();
  const auto begin = Stream(Saved(TextRequest("prompt", 4)));
  v1::ForkSessionResult forks;
  ASSERT_TRUE(Fork(begin.SessionId(), 3, &forks).ok());
  ASSERT_EQ(forks.sessions_size(), 3);
  std::vector<std::vector<uint32_t>> ids;
  for (int i = 0; i < 3; ++i) {
    auto request = GoOn(forks.sessions(i).id(), 12);
    if (i > 0) request.mutable_sampling()->set_seed(100 + i);
    ids.push_back(Stream(request).Ids());
  }
  EXPECT_EQ(Joined(begin.Ids(), ids[0]),
            Stream(TextRequest("prompt", 16)).Ids());
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_NE(ids[1], ids[2]);
}

TEST_F(SessionsServiceTest, MakesManyForksForOneCallAtATime) {
  Start();
  const std::string id = Stream(Saved(TextRequest("x", 1))).SessionId();
  store_->Hold();
  v1::ForkSessionResult many;
  std::thread client([&] { EXPECT_TRUE(Fork(id, 1024, &many).ok()); });
  EXPECT_TRUE(Eventually(
      [this](const EngineStats&) { return store_->num_waiting() > 0; }));
  v1::ForkSessionResult more;
  ExpectError(Fork(id, 1024, &more), grpc::StatusCode::RESOURCE_EXHAUSTED,
              "QUEUE_FULL");
  store_->Release();
  client.join();
  EXPECT_EQ(many.sessions_size(), 1024);
  EXPECT_TRUE(Fork(id, 1024, &more).ok());
}

TEST_F(SessionsServiceTest, RefusesToGoOnWithATextThatHasEnded) {
  Start();
  auto request = Saved(TextRequest("prompt", 100));
  for (int id = 'a'; id <= 'z'; ++id) {
    request.mutable_stopping()->add_stop_token_ids(id);
  }
  const auto begin = Stream(request);
  const std::string id = begin.SessionId();
  ExpectError(Stream(GoOn(id, 5)).status, grpc::StatusCode::FAILED_PRECONDITION,
              "SESSION_ENDED");
  EXPECT_TRUE(EventuallyFree(id));
  auto more = GoOn(id, 5);
  more.set_text(" and");
  EXPECT_TRUE(Stream(more).status.ok());
}

TEST_F(SessionsServiceTest, SavesARequestThatRuns) {
  setup_.server.outbox_events = 4;
  Start();
  auto request = TextRequest("prompt", 100'000);
  request.set_request_id("runs");
  grpc::ClientContext context;
  const auto reader = inference_->Generate(&context, request);
  v1::GenerateEvent event;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(reader->Read(&event));
  v1::SaveSessionRequest save;
  save.set_request_id("runs");
  v1::Session session;
  const grpc::Status status = Ask(&v1::Sessions::Stub::Save, save, &session);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const uint64_t first = session.num_tokens() - 7;  // of the prompt
  const auto rest = Stream(GoOn(session.id(), 10));
  context.TryCancel();
  const auto whole = Stream(TextRequest("prompt", first + 10)).Ids();
  EXPECT_EQ(rest.Ids(), std::vector<uint32_t>(whole.end() - 10, whole.end()));
}

TEST_F(SessionsServiceTest, SavesARequestThatHasFinishedAndNoOther) {
  Start();
  auto request = TextRequest("prompt", 5);
  request.set_request_id("done");
  const auto begin = Stream(request);
  v1::SaveSessionRequest save;
  save.set_request_id("done");
  v1::Session session;
  ASSERT_TRUE(Ask(&v1::Sessions::Stub::Save, save, &session).ok());
  EXPECT_EQ(Joined(begin.Ids(), Stream(GoOn(session.id(), 5)).Ids()),
            Stream(TextRequest("prompt", 10)).Ids());
  save.set_request_id("never");
  ExpectError(Ask(&v1::Sessions::Stub::Save, save, &session),
              grpc::StatusCode::NOT_FOUND, "REQUEST_NOT_FOUND");
}

TEST_F(SessionsServiceTest, LetsOneRequestAtATimeWorkOnASession) {
  Start();
  const auto begin = Stream(Saved(TextRequest("prompt", 4)));
  const std::string id = begin.SessionId();
  grpc::ClientContext context;
  const auto reader = inference_->Generate(&context, GoOn(id, 1'000'000));
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  ExpectError(Stream(GoOn(id, 1)).status, grpc::StatusCode::ABORTED,
              "SESSION_IN_USE");
  ExpectError(Delete(id), grpc::StatusCode::ABORTED, "SESSION_IN_USE");
  v1::Session session;
  ASSERT_TRUE(Get(id, &session).ok());
  EXPECT_TRUE(session.in_use());
  context.TryCancel();
  EXPECT_TRUE(EventuallyFree(id));
  EXPECT_EQ(Joined(begin.Ids(), Stream(GoOn(id, 4)).Ids()),
            Stream(TextRequest("prompt", 8)).Ids());
}

TEST_F(SessionsServiceTest, AClaimIsTakenOverByItsEpochAndLostToTheOther) {
  Start();
  const auto begin = Stream(Saved(TextRequest("prompt", 4)));
  const std::string id = begin.SessionId();
  grpc::ClientContext context;
  const auto first = inference_->Generate(&context, GoOn(id, 2000));
  v1::GenerateEvent event;
  ASSERT_TRUE(first->Read(&event));
  ASSERT_TRUE(event.has_accepted());
  auto request = GoOn(id, 10);
  request.mutable_session()->set_takeover_epoch(
      event.accepted().session_epoch());
  const auto second = Stream(request);
  ASSERT_TRUE(second.status.ok()) << second.status.error_message();
  EXPECT_EQ(Joined(begin.Ids(), second.Ids()),
            Stream(TextRequest("prompt", 14)).Ids());
  while (first->Read(&event)) EXPECT_FALSE(event.has_finished());
  ExpectError(first->Finish(), grpc::StatusCode::ABORTED, "SESSION_IN_USE");
  v1::Session session;
  ASSERT_TRUE(Get(id, &session).ok());
  EXPECT_EQ(session.num_tokens(), 7 + 14u);
}

// As if the connection had been cut after any token.
TEST_F(SessionsServiceTest, ARequestGetsTheRestOfWhatItHasWritten) {
  Start();
  const auto begin = Stream(Saved(TextRequest("prompt", 4)));
  const std::string id = begin.SessionId();
  auto request = GoOn(id, 10);
  request.set_request_id("cut");
  const auto whole = Stream(request);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  v1::Session written;
  ASSERT_TRUE(Get(id, &written).ok());
  const std::vector<uint32_t> ids = whole.Ids();
  uint64_t epoch = whole.events[0].accepted().session_epoch();
  for (size_t told = 0; told <= 10; ++told) {
    SCOPED_TRACE(told);
    auto again = request;
    again.mutable_session()->set_takeover_epoch(epoch);
    again.mutable_sampling()->set_seed(whole.events[0].accepted().seed());
    auto* prior = again.add_prior_output_ids();
    for (size_t i = 0; i < told; ++i) prior->add_ids(ids[i]);
    const auto rest = Stream(again);
    ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
    EXPECT_EQ(rest.Ids(), std::vector<uint32_t>(ids.begin() + told, ids.end()));
    EXPECT_EQ(rest.SessionId(), id);
    epoch = rest.events[0].accepted().session_epoch();
    v1::Session session;
    ASSERT_TRUE(Get(id, &session).ok());
    EXPECT_EQ(session.num_tokens(), written.num_tokens());
  }
  EXPECT_EQ(Joined(Joined(begin.Ids(), whole.Ids()), Stream(GoOn(id, 5)).Ids()),
            Stream(TextRequest("prompt", 19)).Ids());
  request.mutable_session()->set_takeover_epoch(epoch);
  ExpectError(Stream(request).status, grpc::StatusCode::FAILED_PRECONDITION,
              "SESSION_MISMATCH");
}

// Its Accepted is lost too, so the epoch is not known.
TEST_F(SessionsServiceTest, ARequestThatHeardNothingGetsWhatItHasWritten) {
  Start();
  const auto begin = Stream(Saved(TextRequest("prompt", 4)));
  const std::string id = begin.SessionId();
  auto request = GoOn(id, 10);
  request.set_request_id("cut");
  request.mutable_session()->set_takeover_epoch(0);
  const auto whole = Stream(request);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  for (int round = 0; round < 3; ++round) {
    const auto again = Stream(request);
    ASSERT_TRUE(again.status.ok()) << again.status.error_message();
    EXPECT_EQ(again.Ids(), whole.Ids());
  }
  v1::Session session;
  ASSERT_TRUE(Get(id, &session).ok());
  EXPECT_EQ(session.num_tokens(), 7 + 14u);
}

// A client whose connection takes little, and a server that keeps the rest.
class UnreadSessionsTest : public SessionsServiceTest {
 protected:
  static constexpr uint64_t kTokens = 3000;

  UnreadSessionsTest() { setup_.server.outbox_events = 2 * kTokens; }

  void StartWithSession() {
    Start();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    narrow_ = v1::Inference::NewStub(grpc::CreateCustomChannel(
        address(), grpc::InsecureChannelCredentials(), arguments));
    id_ = Stream(Saved(TextRequest("prompt", 4))).SessionId();
    request_ = GoOn(id_, kTokens);
    request_.mutable_response()->set_logprobs(20);
  }
  // Until the engine has made all of it, for the `count`-th time.
  bool EventuallyMade(int count) {
    return Eventually([count](const EngineStats& stats) {
      return stats.finished_requests == 1 + count;
    });
  }
  void ExpectTokens(uint64_t num_tokens) {
    v1::Session session;
    ASSERT_TRUE(Get(id_, &session).ok());
    EXPECT_EQ(session.num_tokens(), 7 + num_tokens);
  }

  std::unique_ptr<v1::Inference::Stub> narrow_;
  std::string id_;
  v1::GenerateRequest request_;
};

TEST_F(UnreadSessionsTest, AreNotWrittenBeforeTheClientHasTakenTheText) {
  StartWithSession();
  {
    grpc::ClientContext context;
    const auto reader = narrow_->Generate(&context, request_);
    EXPECT_TRUE(EventuallyMade(1));
    ExpectTokens(4);
    context.TryCancel();
  }
  // It was not read to its end: the session is as it was.
  EXPECT_TRUE(EventuallyFree(id_));
  ExpectTokens(4);

  grpc::ClientContext context;
  const auto reader = narrow_->Generate(&context, request_);
  EXPECT_TRUE(EventuallyMade(2));
  ExpectTokens(4);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(event.finished().session().num_tokens(), 7 + 4 + kTokens);
  ExpectTokens(4 + kTokens);
}

TEST_F(UnreadSessionsTest, AreLeftAsTheyWereByAClientThatReadsNoMore) {
  setup_.server.linger = milliseconds(100);
  StartWithSession();
  grpc::ClientContext context;
  const auto reader = narrow_->Generate(&context, request_);
  EXPECT_TRUE(EventuallyMade(1));
  EXPECT_TRUE(EventuallyFree(id_));
  ExpectTokens(4);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(SessionsServiceTest, ARequestThatFailsLeavesTheSessionFree) {
  MakeSteps();
  setup_.sizes.num_slots = 1;
  setup_.engine.max_queued_requests = 1;
  Start();
  const auto begin = Stream(Saved(TextRequest("prompt", 4)));
  const std::string id = begin.SessionId();
  held_.store(true);
  in_step_.store(false);
  grpc::ClientContext contexts[2];
  const auto runs = inference_->Generate(&contexts[0], TextRequest("runs", 1));
  ASSERT_TRUE(
      Eventually([this](const EngineStats&) { return in_step_.load(); }));
  const auto waits =
      inference_->Generate(&contexts[1], TextRequest("waits", 1));
  ASSERT_TRUE(Eventually(
      [](const EngineStats& stats) { return stats.queued_requests == 1; }));
  ExpectError(Stream(GoOn(id, 1)).status, grpc::StatusCode::RESOURCE_EXHAUSTED,
              "QUEUE_FULL");
  v1::Session session;
  ASSERT_TRUE(Get(id, &session).ok());
  EXPECT_FALSE(session.in_use());  // at once: the call ends after that
  held_.store(false);
}

TEST_F(SessionsServiceTest, RefusesMoreSessionsThanItHasMemoryFor) {
  setup_.server.max_session_bytes = 100;
  Start();
  const auto begin = Stream(Saved(TextRequest("a prompt of some length", 4)));
  v1::ForkSessionResult forks;
  ASSERT_TRUE(Fork(begin.SessionId(), 2, &forks).ok());
  grpc::ClientContext context;
  const auto reader =
      inference_->Generate(&context, GoOn(forks.sessions(0).id(), 1'000'000));
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  const std::string other = forks.sessions(1).id();
  ExpectError(Stream(GoOn(other, 1)).status,
              grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL");
  context.TryCancel();
  EXPECT_TRUE(Eventually(
      [&](const EngineStats&) { return Stream(GoOn(other, 1)).status.ok(); }));
}

TEST_F(SessionsServiceTest, ACancelAtAnyPointLeavesTheSessionFree) {
  Start();
  const auto begin = Stream(Saved(TextRequest("prompt", 4)));
  const std::string id = begin.SessionId();
  for (int i = 0; i < 40; ++i) {
    grpc::ClientContext context;
    const auto reader = inference_->Generate(&context, GoOn(id, 20));
    v1::GenerateEvent event;
    for (int n = 0; n < i % 23 && reader->Read(&event); ++n) {
    }
    context.TryCancel();
    reader->Finish();
    ASSERT_TRUE(EventuallyFree(id)) << i;
  }
  EXPECT_TRUE(Stream(GoOn(id, 1)).status.ok());
}

TEST_F(SessionsServiceTest, TellsNothingOfASessionBeforeItIsInTheStore) {
  Start();
  store_->Hold();
  grpc::ClientContext context;
  auto request = TextRequest("prompt", 4);
  const auto plain = Stream(request);  // needs no store
  EXPECT_TRUE(plain.status.ok());
  std::atomic<bool> finished{false};
  StreamAnswer answer;
  std::thread client([&] {
    answer = Stream(Saved(request));
    finished.store(true);
  });
  EXPECT_TRUE(Eventually(
      [this](const EngineStats&) { return store_->num_waiting() > 0; }));
  EXPECT_FALSE(finished.load());
  store_->Release();
  client.join();
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_THAT(answer.SessionId(), Not(IsEmpty()));
}

TEST_F(SessionsServiceTest, ASaveInFlightIsFinishedWhenTheServerStops) {
  Start();
  store_->Hold();
  StreamAnswer answer;
  std::thread client([&] { answer = Stream(Saved(TextRequest("prompt", 4))); });
  ASSERT_TRUE(Eventually(
      [this](const EngineStats&) { return store_->num_waiting() > 0; }));
  server_->LeaveService();
  engine_->Stop(Clock::now() + kPatience);
  std::thread shutdown([this] { server_->Shutdown(Clock::now() + kPatience); });
  store_->Release();
  client.join();
  shutdown.join();
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_THAT(answer.SessionId(), Not(IsEmpty()));
}

TEST_F(SessionsServiceTest, EndsWithTheStoresWordsWhereItFails) {
  Start();
  const auto begin = Stream(Saved(TextRequest("prompt", 4)));
  const std::string id = begin.SessionId();
  store_->Fail(absl::UnavailableError("nobody answers"));
  ExpectError(Stream(Saved(TextRequest("x", 1))).status,
              grpc::StatusCode::UNAVAILABLE, "SESSION_STORE_DOWN");
  ExpectError(Stream(GoOn(id, 1)).status, grpc::StatusCode::UNAVAILABLE,
              "SESSION_STORE_DOWN");
  v1::Session session;
  ExpectError(Get(id, &session), grpc::StatusCode::UNAVAILABLE,
              "SESSION_STORE_DOWN");
  store_->Fail(absl::ResourceExhaustedError("no room"));
  auto unary = Saved(TextRequest("x", 1));
  v1::GenerateResult result;
  ExpectError(Unary(unary, &result), grpc::StatusCode::RESOURCE_EXHAUSTED,
              "SESSION_STORE_FULL");
  store_->Fail(absl::OkStatus());
  EXPECT_EQ(Joined(begin.Ids(), Stream(GoOn(id, 4)).Ids()),
            Stream(TextRequest("prompt", 8)).Ids());
}

TEST_F(SessionsServiceTest, AStoreThatFailsAtTheEndOfOneOutputEndsThemAll) {
  Start();
  auto request = Saved(TextRequest("prompt", 100'000));
  request.mutable_sampling()->set_num_outputs(2);
  store_->Fail(absl::UnavailableError("nobody answers"));
  request.mutable_stopping()->add_stop_token_ids('q');
  ExpectError(Stream(request).status, grpc::StatusCode::UNAVAILABLE,
              "SESSION_STORE_DOWN");
}

TEST_F(SessionsServiceTest, RefusesMoreThanMayWaitForTheStore) {
  setup_.server.store_threads = 1;
  Start();
  const std::string id = Stream(Saved(TextRequest("x", 1))).SessionId();
  store_->Hold();
  std::vector<std::thread> clients;
  std::atomic<int> num_full{0};
  for (int i = 0; i < 80; ++i) {
    clients.emplace_back([&] {
      v1::Session session;
      const grpc::Status status = Get(id, &session);
      if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
        ++num_full;
      }
    });
  }
  EXPECT_TRUE(
      Eventually([&](const EngineStats&) { return num_full.load() >= 15; }));
  store_->Release();
  for (auto& client : clients) client.join();
}

TEST_F(SessionsServiceTest, ARequestThatWasCutOffGoesOnFromItsCheckpoint) {
  std::atomic<int> num_steps{0};
  held_.store(true);
  setup_.before_step = [&] {  // three of the prompt, then one a token
    const int step = ++num_steps;
    while (step > 36 && held_.load()) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  setup_.checkpoint_every_tokens = 8;
  Start();
  auto request = TextRequest("a prompt of chunks", 60);
  request.set_request_id("cut off");
  {
    grpc::ClientContext context;
    const auto reader = inference_->Generate(&context, request);
    v1::GenerateEvent event;
    auto& prior = *request.add_prior_output_ids();
    while (prior.ids_size() < 32 && reader->Read(&event)) {
      if (event.has_token()) prior.add_ids(event.token().token().id());
    }
    EXPECT_TRUE(Eventually([&](const EngineStats&) {
      const CheckpointKeeper::Stats stats = checkpoints_->stats();
      return stats.written > 0 && stats.waiting == 0;
    }));
    // As if the server ended here: what it did later, such as to go on to the
    // end because it had not heard of the cancel yet, would leave nothing.
    store_->Fail(absl::UnavailableError("cut off"));
    context.TryCancel();
    held_.store(false);
    reader->Finish();
  }
  Stop();
  store_->Fail(absl::OkStatus());
  Start();  // another one, with a prefix cache of its own
  const auto rest = Stream(request);
  ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
  EXPECT_EQ(rest.events.front().accepted().cached_prompt_tokens(), 19u);
  EXPECT_EQ(checkpoints_->stats().recalled, 1);
  const auto whole = Stream(TextRequest("a prompt of chunks", 60)).Ids();
  EXPECT_EQ(rest.Ids(), std::vector<uint32_t>(whole.begin() + 32, whole.end()));
}

TEST_F(SessionsServiceTest, ListsDeletesAndPins) {
  Start();
  const auto begin = Stream(Saved(TextRequest("prompt", 4)));
  v1::ForkSessionResult forks;
  ASSERT_TRUE(Fork(begin.SessionId(), 9, &forks).ok());
  v1::ListSessionsRequest list;
  list.set_page_size(3);
  std::set<std::string> ids;
  for (int page = 0; page < 20; ++page) {
    v1::ListSessionsResult result;
    ASSERT_TRUE(Ask(&v1::Sessions::Stub::List, list, &result).ok());
    for (const auto& session : result.sessions()) ids.insert(session.id());
    if (result.next_page().empty()) break;
    list.set_page(result.next_page());
  }
  EXPECT_THAT(ids, SizeIs(10));
  EXPECT_TRUE(Delete(forks.sessions(0).id()).ok());
  ExpectError(Delete(forks.sessions(0).id()), grpc::StatusCode::NOT_FOUND,
              "SESSION_NOT_FOUND");
  v1::PinSessionRequest pin;
  pin.set_id(begin.SessionId());
  pin.set_time_to_live_seconds(2'592'000);
  v1::Session session;
  ASSERT_TRUE(Ask(&v1::Sessions::Stub::Pin, pin, &session).ok());
  EXPECT_GT(session.expires_ms() - session.created_ms(), 2'591'000'000u);
}

TEST_F(SessionsServiceTest, SaysWhatIsWrongWithARequest) {
  Start();
  v1::Session session;
  EXPECT_THAT(DetailsOf(Get("", &session)).violations["id"],
              HasSubstr("required"));
  v1::ForkSessionResult forks;
  EXPECT_THAT(DetailsOf(Fork("any", 1025, &forks)).violations["count"],
              HasSubstr("1024"));
  v1::ListSessionsRequest list;
  list.set_page_size(1001);
  v1::ListSessionsResult page;
  EXPECT_THAT(DetailsOf(Ask(&v1::Sessions::Stub::List, list, &page))
                  .violations["page_size"],
              HasSubstr("1000"));
  list.set_page_size(1000);
  list.set_page("elsewhere/0");
  EXPECT_THAT(
      DetailsOf(Ask(&v1::Sessions::Stub::List, list, &page)).violations["page"],
      HasSubstr("elsewhere"));
  v1::PinSessionRequest pin;
  pin.set_id("any");
  EXPECT_THAT(DetailsOf(Ask(&v1::Sessions::Stub::Pin, pin, &session))
                  .violations["time_to_live_seconds"],
              HasSubstr("is 0; the least is 1"));
  v1::SaveSessionRequest save;
  EXPECT_THAT(DetailsOf(Ask(&v1::Sessions::Stub::Save, save, &session))
                  .violations["request_id"],
              HasSubstr("required"));
  for (const char* id : {"../x", "a/b", ".", "\x01", "nobody"}) {
    ExpectError(Get(id, &session), grpc::StatusCode::NOT_FOUND,
                "SESSION_NOT_FOUND");
  }
}

class OwnersTest : public SessionsServiceTest {
 protected:
  OwnersTest() { setup_.server.identity = MakeOwnerOfMetadata("x-tenant"); }

  StreamAnswer StreamAs(const std::string& owner,
                        const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.AddMetadata("x-tenant", owner);
    return Stream(request, context);
  }
};

TEST_F(OwnersTest, FindNothingOfEachOther) {
  Start();
  auto request = Saved(TextRequest("prompt", 4));
  request.set_request_id("hers");
  const auto hers = StreamAs("ann", request);
  const std::string id = hers.SessionId();
  v1::Session session;
  ASSERT_TRUE(Get(id, &session, "ann").ok());
  v1::ForkSessionResult forks;
  std::string bytes;
  v1::SaveSessionRequest save;
  save.set_request_id("hers");
  v1::PinSessionRequest pin;
  pin.set_id(id);
  pin.set_time_to_live_seconds(1);
  for (const grpc::Status& status :
       {Get(id, &session, "bob"), Delete(id, "bob"), Fork(id, 1, &forks, "bob"),
        Export(id, &bytes, nullptr, "bob"),
        Ask(&v1::Sessions::Stub::Pin, pin, &session, "bob"),
        StreamAs("bob", GoOn(id, 1)).status}) {
    ExpectError(status, grpc::StatusCode::NOT_FOUND, "SESSION_NOT_FOUND");
  }
  ExpectError(Ask(&v1::Sessions::Stub::Save, save, &session, "bob"),
              grpc::StatusCode::NOT_FOUND, "REQUEST_NOT_FOUND");
  v1::ListSessionsResult page;
  ASSERT_TRUE(
      Ask(&v1::Sessions::Stub::List, v1::ListSessionsRequest(), &page, "bob")
          .ok());
  EXPECT_EQ(page.sessions_size(), 0);
  EXPECT_TRUE(StreamAs("ann", GoOn(id, 1)).status.ok());
}

TEST_F(OwnersTest, AreToldOfWhatOthersHaveAsOfWhatNeverWas) {
  Start();
  const std::string id =
      StreamAs("ann", Saved(TextRequest("prompt", 4))).SessionId();
  v1::Session session;
  std::string hers = Get(id, &session, "bob").error_message();
  const std::string other(id.size(), '0');
  const std::string none = Get(other, &session, "bob").error_message();
  hers.replace(hers.find(id), id.size(), other);
  EXPECT_EQ(hers, none);
}

TEST_F(OwnersTest, HaveToBeKnown) {
  Start();
  v1::Session session;
  std::string bytes;
  for (const grpc::Status& status :
       {Get("any", &session), Export("any", &bytes), Import("any", &session),
        Stream(TextRequest("x", 1)).status}) {
    ExpectError(status, grpc::StatusCode::UNAUTHENTICATED, "NO_TENANT");
  }
}

TEST_F(OwnersTest, MayHaveRequestsOfOneId) {
  Start();
  auto request = TextRequest("x", 1'000'000);
  request.set_request_id("same");
  grpc::ClientContext context;
  context.AddMetadata("x-tenant", "ann");
  const auto hers = inference_->Generate(&context, request);
  v1::GenerateEvent event;
  ASSERT_TRUE(hers->Read(&event));
  request.mutable_stopping()->set_max_tokens(1);
  EXPECT_TRUE(StreamAs("bob", request).status.ok());
  ExpectError(StreamAs("ann", request).status, grpc::StatusCode::ALREADY_EXISTS,
              "REQUEST_ID_IN_USE");
  context.TryCancel();
}

TEST_F(ServiceTest, SaysSoWhereThereAreNoSessions) {
  Start();
  const grpc::Status status = Stream(Saved(TextRequest("x", 1))).status;
  EXPECT_THAT(DetailsOf(status).violations["save_session"],
              HasSubstr("keeps no sessions"));
  grpc::ClientContext context;
  v1::Session session;
  EXPECT_EQ(kept_->Get(&context, {}, &session).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace flash
