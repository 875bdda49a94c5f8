// Sessions of the demo model: what is saved goes on bit for bit, whatever
// became of the server meanwhile.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/end_to_end/caller.h"
#include "tests/end_to_end/server_process.h"
#include "tests/reference/temporary_directory.h"

namespace flash {
namespace {

using testing::HasSubstr;

constexpr char kDemo[] = "--model=" FLASH_SOURCE_DIR "/deploy/models/demo";

#ifdef __SANITIZE_ADDRESS__  // it is slow, and keeps what is freed for a while
constexpr int kManySessions = 50;
constexpr int64_t kMostResident = int64_t{4} << 30;
#else
constexpr int kManySessions = 1000;
constexpr int64_t kMostResident = int64_t{1} << 30;
#endif

// Held back for a while, and again, and never there as a whole.
constexpr char kStop[] = " the Lord of the rings";

// Of more tokens than a chunk has, so that outputs cross its edge.
v1::GenerateRequest Request(uint64_t max_tokens) {
  v1::GenerateRequest request;
  std::string text = "The book of the generations.";
  for (int n = 0; n < 60; ++n) text += " and he begat sons and daughters;";
  request.set_text(text);
  request.mutable_sampling()->set_temperature(0.9f);
  request.mutable_sampling()->set_seed(11);
  request.mutable_sampling()->set_frequency_penalty(0.3f);
  request.mutable_sampling()->set_repetition_penalty(1.1f);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_stopping()->add_stop_strings(kStop);
  request.mutable_response()->set_logprobs(0);
  return request;
}

// The same, of a session, without a prompt.
v1::GenerateRequest GoOn(const std::string& session, uint64_t max_tokens) {
  v1::GenerateRequest request = Request(max_tokens);
  request.clear_input();
  request.mutable_sampling()->clear_seed();
  request.mutable_session()->set_id(session);
  return request;
}

v1::GenerateRequest Saved(v1::GenerateRequest request) {
  request.set_save_session(true);
  return request;
}

// That `begin` and then `rest` are `whole`.
void ExpectJoined(const Heard& begin, const Heard& rest, const Heard& whole) {
  ASSERT_TRUE(begin.status.ok()) << begin.status.error_message();
  ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  std::vector<uint32_t> ids = begin.ids;
  ids.insert(ids.end(), rest.ids.begin(), rest.ids.end());
  EXPECT_EQ(ids, whole.ids);
  std::vector<float> logprobs = begin.logprobs;
  logprobs.insert(logprobs.end(), rest.logprobs.begin(), rest.logprobs.end());
  EXPECT_EQ(logprobs, whole.logprobs);  // floats: the same or not
  // What is held back at the end is told, unless it is kept for what follows.
  const std::string text = begin.text + rest.text;
  ASSERT_EQ(whole.text.substr(0, text.size()), text);
  const std::string held = whole.text.substr(text.size());
  EXPECT_EQ(std::string(kStop).substr(0, held.size()), held);
}

class ServedSessionsTest : public testing::Test {
 protected:
  // A server with these flags beside the model's.
  std::unique_ptr<ServerProcess> Start(std::vector<std::string> flags) {
    flags.push_back(kDemo);
    auto server = std::make_unique<ServerProcess>(flags);
    EXPECT_TRUE(server->WaitUntilServing()) << server->Errors();
    return server;
  }
  std::string StoreFlag() const {
    return "--session_store=dir:" + store_.path() + "/sessions";
  }

  const TemporaryDirectory store_;
};

class EveryTypeTest : public ServedSessionsTest,
                      public testing::WithParamInterface<std::string> {};

TEST_P(EveryTypeTest, GoesOnAfterExportRestartAndImport) {
  const std::string weights = "--weights=" + GetParam();
  auto server = Start({weights});
  auto caller = std::make_unique<Caller>(server->address());
  constexpr size_t kWhole = 300;
  const Heard whole = caller->Generate(Request(kWhole));
  ASSERT_EQ(whole.ids.size(), kWhole);
  // Beside the chunk's edges, and elsewhere.
  const size_t chunk = 128;
  const size_t edge = chunk - whole.usage.prompt_tokens() % chunk;
  std::vector<size_t> places = {0,    1,        100,       edge - 1,
                                edge, edge + 1, kWhole - 1};
  std::vector<Heard> begins;
  std::vector<std::string> exports;
  for (const size_t place : places) {
    begins.push_back(caller->Generate(Saved(Request(place))));
    exports.push_back(caller->Export(begins.back().session.id()));
    ASSERT_FALSE(exports.back().empty());
  }
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(), 0);
  server = Start({weights});
  caller = std::make_unique<Caller>(server->address());
  for (size_t i = 0; i < places.size(); ++i) {
    SCOPED_TRACE(places[i]);
    const std::string id = caller->Import(exports[i]);
    ASSERT_FALSE(id.empty());
    ExpectJoined(begins[i], caller->Generate(GoOn(id, kWhole - places[i])),
                 whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, EveryTypeTest,
                         testing::Values("float32", "bfloat16", "int8"),
                         [](const auto& info) { return info.param; });

TEST_F(ServedSessionsTest, ADirectoryOutlivesTheServerThatIsKilled) {
  auto server = Start({StoreFlag()});
  auto caller = std::make_unique<Caller>(server->address());
  EXPECT_EQ(caller->Info().sessions().store(), "dir");
  EXPECT_GT(caller->Info().sessions().max_import_bytes(), 0u);
  const Heard whole = caller->Generate(Request(60));
  const Heard begin = caller->Generate(Saved(Request(20)));
  const Heard middle = caller->Generate(GoOn(begin.session.id(), 20));
  EXPECT_EQ(middle.session.id(), begin.session.id());
  server->Signal(SIGKILL);
  server->Wait();
  server = Start({StoreFlag()});
  caller = std::make_unique<Caller>(server->address());
  Heard rest = caller->Generate(GoOn(begin.session.id(), 20));
  rest.ids.insert(rest.ids.begin(), middle.ids.begin(), middle.ids.end());
  rest.logprobs.insert(rest.logprobs.begin(), middle.logprobs.begin(),
                       middle.logprobs.end());
  rest.text = middle.text + rest.text;
  ExpectJoined(begin, rest, whole);
}

TEST_F(ServedSessionsTest,
       AnotherModelOrTypeRefusesASessionAndSaysWhatDiffers) {
  auto server = Start({StoreFlag(), "--weights=float32"});
  Caller caller(server->address());
  const Heard begin = caller.Generate(Saved(Request(5)));
  ASSERT_TRUE(begin.status.ok()) << begin.status.error_message();
  auto other = Start({StoreFlag(), "--weights=bfloat16"});
  const Heard rest =
      Caller(other->address()).Generate(GoOn(begin.session.id(), 5));
  EXPECT_EQ(rest.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(rest.status.error_message(), HasSubstr("float32"));
}

TEST_F(ServedSessionsTest, ForksGoOnEachWithItsSeed) {
  auto server = Start({});
  Caller caller(server->address());
  const Heard begin = caller.Generate(Saved(Request(20)));
  const auto forks = caller.Fork(begin.session.id(), 4);
  ASSERT_EQ(forks.size(), 4u);
  for (size_t i = 0; i < forks.size(); ++i) {
    v1::GenerateRequest request = GoOn(forks[i], 40);
    request.mutable_sampling()->set_seed(500 + i);
    // The same, as a request that was cut off after these tokens.
    v1::GenerateRequest whole = Request(60);
    whole.mutable_sampling()->set_seed(500 + i);
    for (const uint32_t id : begin.ids) {
      if (whole.prior_output_ids_size() == 0) whole.add_prior_output_ids();
      whole.mutable_prior_output_ids(0)->add_ids(id);
    }
    EXPECT_EQ(caller.Generate(request).ids, caller.Generate(whole).ids);
  }
}

// A server of the store is killed while it works on a session.
TEST_F(ServedSessionsTest,
       AKilledServersClaimIsTakenOverAtOnceAndEndsByItself) {
  auto first = Start({StoreFlag()});
  auto second = Start({StoreFlag()});
  Caller caller(second->address());
  const Heard whole = caller.Generate(Request(40));
  const Heard begin = caller.Generate(Saved(Request(20)));
  const auto forks = caller.Fork(begin.session.id(), 2);
  ASSERT_EQ(forks.size(), 2u);
  std::vector<uint64_t> epochs;
  {
    Caller doomed(first->address());
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>>> readers;
    for (const std::string& fork : forks) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      readers.push_back(doomed.inference().Generate(contexts.back().get(),
                                                    GoOn(fork, 1 << 20)));
      v1::GenerateEvent event;
      ASSERT_TRUE(readers.back()->Read(&event));
      epochs.push_back(event.accepted().session_epoch());
    }
    EXPECT_EQ(caller.Generate(GoOn(forks[0], 20)).status.error_code(),
              grpc::StatusCode::ABORTED);
    first->Signal(SIGKILL);
    first->Wait();
    v1::GenerateEvent event;
    for (const auto& reader : readers) {
      while (reader->Read(&event)) {
      }
      reader->Finish();
    }
  }
  v1::GenerateRequest request = GoOn(forks[0], 20);
  request.mutable_session()->set_takeover_epoch(epochs[0]);
  ExpectJoined(begin, caller.Generate(request), whole);
  // Without the epoch: when the lease is over.
  Heard rest;
  for (int n = 0; n < 300 && (n == 0 || !rest.status.ok()); ++n) {
    rest = caller.Generate(GoOn(forks[1], 20));
    if (rest.status.ok()) break;
    ASSERT_EQ(rest.status.error_code(), grpc::StatusCode::ABORTED);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ExpectJoined(begin, rest, whole);
}

TEST_F(ServedSessionsTest, OwnersFindNothingOfEachOther) {
  auto server = Start({"--tenant_metadata=x-tenant"});
  Caller caller(server->address());
  const auto session_of = [&](const char* owner, const std::string& id) {
    grpc::ClientContext context;
    context.AddMetadata("x-tenant", owner);
    v1::GenerateResult result;
    v1::GenerateRequest request = id.empty() ? Saved(Request(3)) : GoOn(id, 3);
    const grpc::Status status =
        caller.inference().GenerateUnary(&context, request, &result);
    if (status.ok()) return result.outputs(0).session().id();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
    return std::string();
  };
  const std::string id = session_of("ann", "");
  ASSERT_FALSE(id.empty());
  EXPECT_EQ(session_of("bob", id), "");
  EXPECT_EQ(session_of("ann", id), id);
  EXPECT_EQ(caller.Generate(Request(1)).status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

// More than memory holds, more than there are slots, twice each.
TEST_F(ServedSessionsTest, AThousandPassThroughEightSlots) {
  constexpr int kClients = 16;
  auto server =
      Start({StoreFlag(), "--slots=8", "--session_cache_bytes=134217728",
             "--prefix_cache_bytes=134217728"});
  const auto request_of = [](int n, uint64_t max_tokens) {
    v1::GenerateRequest request = Request(max_tokens);
    request.set_text("Chapter " + std::to_string(n) + ". And it came to pass");
    request.mutable_sampling()->set_seed(n);
    return request;
  };
  const auto in_parallel = [&](const std::function<void(Caller&, int)>& body) {
    std::atomic<int> next{0};
    std::vector<std::thread> threads;
    for (int client = 0; client < kClients; ++client) {
      threads.emplace_back([&] {
        Caller caller(server->address());
        for (int n = next++; n < kManySessions; n = next++) body(caller, n);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  std::vector<Heard> begins(kManySessions);
  std::vector<Heard> rests(kManySessions);
  std::vector<Heard> wholes(kManySessions);
  int64_t resident = 0;
  const auto begin_at = std::chrono::steady_clock::now();
  in_parallel([&](Caller& caller, int n) {
    begins[n] = caller.Generate(Saved(request_of(n, 8)));
    if (n % 50 == 0) {
      ASSERT_LT(server->ResidentBytes(), kMostResident);
    }
  });
  const auto saved_at = std::chrono::steady_clock::now();
  in_parallel([&](Caller& caller, int n) {
    rests[n] = caller.Generate(GoOn(begins[n].session.id(), 8));
    if (n % 50 == 0) {
      ASSERT_LT(server->ResidentBytes(), kMostResident);
    }
  });
  const auto gone_on_at = std::chrono::steady_clock::now();
  resident = server->ResidentBytes();
  in_parallel([&](Caller& caller, int n) {
    wholes[n] = caller.Generate(request_of(n, 16));
  });
  int64_t bytes = 0;
  for (int n = 0; n < kManySessions; ++n) {
    SCOPED_TRACE(n);
    ExpectJoined(begins[n], rests[n], wholes[n]);
    bytes += static_cast<int64_t>(rests[n].session.num_bytes());
  }
  const auto ms = [](auto duration) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(duration)
        .count();
  };
  std::printf(
      "%d sessions of %ld bytes in all through 8 slots: %ld MiB resident; "
      "begun and saved in %ld ms, gone on with in %ld ms\n",
      kManySessions, static_cast<long>(bytes),
      static_cast<long>(resident >> 20),
      static_cast<long>(ms(saved_at - begin_at)),
      static_cast<long>(ms(gone_on_at - saved_at)));
}

}  // namespace
}  // namespace flash
