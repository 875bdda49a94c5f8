// The demo model in a real server: what a user of it would see.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "tests/end_to_end/caller.h"
#include "tests/end_to_end/server_process.h"

namespace flash {
namespace {

constexpr char kDemo[] = "--model=" FLASH_SOURCE_DIR "/deploy/models/demo";

#ifdef __SANITIZE_ADDRESS__  // it is slow, and keeps what is freed for a while
constexpr int kStreams = 16;
constexpr int64_t kMostGrowth = 512 << 20;
#else
constexpr int kStreams = 64;
constexpr int64_t kMostGrowth = 4 << 20;
#endif

v1::GenerateRequest Request(const std::string& text, uint64_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_sampling()->set_temperature(0.8f);
  request.mutable_sampling()->set_seed(11);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  request.mutable_response()->set_logprobs(0);
  return request;
}

// Prompts of many lengths, around the chunk's edge and beyond.
v1::GenerateRequest NumberedRequest(int n) {
  std::string text = "Chapter " + std::to_string(n) + ".";
  for (int word = 0; word < n * n / 4; ++word)
    text += " and he said unto them,";
  v1::GenerateRequest request = Request(text, 40 + n % 50);
  request.mutable_sampling()->set_seed(1000 + n);
  request.mutable_sampling()->set_temperature(n % 3 == 0 ? 0.0f : 0.9f);
  if (n % 4 == 1) request.mutable_sampling()->set_repetition_penalty(1.2f);
  if (n % 5 == 2) request.mutable_sampling()->set_top_p(0.9f);
  // Makes denormals of logits: they must be the same ones in a crowd.
  if (n % 11 == 6) request.mutable_sampling()->set_repetition_penalty(3e38f);
  if (n % 7 == 3) request.mutable_stopping()->add_stop_strings(" the ");
  return request;
}

class DemoModelTest : public testing::Test {
 protected:
  // A server with these flags beside the model's.
  ServerProcess& Start(std::vector<std::string> flags) {
    flags.push_back(kDemo);
    server_ = std::make_unique<ServerProcess>(flags);
    EXPECT_TRUE(server_->WaitUntilServing()) << server_->Errors();
    return *server_;
  }

  std::unique_ptr<ServerProcess> server_;
};

// All but what the server had at hand, which is no part of the answer.
std::string Counts(v1::Usage usage) {
  usage.clear_cached_prompt_tokens();
  return usage.SerializeAsString();
}

void ExpectEqual(const Heard& a, const Heard& b) {
  EXPECT_TRUE(a.status.ok()) << a.status.error_message();
  EXPECT_TRUE(b.status.ok()) << b.status.error_message();
  EXPECT_TRUE(a.in_order && b.in_order);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.logprobs, b.logprobs);  // floats: the same or not
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.reason, b.reason);
  EXPECT_EQ(Counts(a.usage), Counts(b.usage));
}

TEST_F(DemoModelTest, ManyStreamsAtOnceEachEqualTheirSoloRun) {
  const ServerProcess& server = Start({"--slots=64"});
  std::vector<Heard> together(kStreams);
  std::vector<std::thread> threads;
  for (int n = 0; n < kStreams; ++n) {
    threads.emplace_back([&, n] {
      together[n] = Caller(server.address()).Generate(NumberedRequest(n));
    });
  }
  for (std::thread& thread : threads) thread.join();
  Caller caller(server.address());
  for (int n = 0; n < kStreams; ++n) {
    SCOPED_TRACE(n);
    ExpectEqual(together[n], caller.Generate(NumberedRequest(n)));
    EXPECT_FALSE(together[n].ids.empty());
  }
}

TEST_F(DemoModelTest, DraftsChangeNothingThatAClientHears) {
  const ServerProcess& with = Start({"--max_drafted_tokens=7"});
  ServerProcess without({kDemo, "--max_drafted_tokens=0"});
  ASSERT_TRUE(without.WaitUntilServing()) << without.Errors();
  Caller drafting(with.address());
  Caller plain(without.address());
  for (int n = 0; n < 12; ++n) {
    SCOPED_TRACE(n);
    // Those with an even number say what they have said before.
    v1::GenerateRequest request = NumberedRequest(n);
    if (n % 2 == 0) {
      std::string text;
      for (int line = 0; line < 5 + n; ++line) {
        text += "And the evening and the morning were the first day. ";
      }
      request.set_text(text);
      request.mutable_sampling()->set_temperature(n % 4 == 0 ? 0 : 0.5f);
      request.mutable_stopping()->set_max_tokens(300);
    }
    ExpectEqual(drafting.Generate(request), plain.Generate(request));
  }
  EXPECT_GT(drafting.Load().accepted_tokens(), 300u);
  EXPECT_EQ(plain.Load().drafted_tokens(), 0u);
}

TEST_F(DemoModelTest, ReadsAsEnglishAndSaysWhatItUsed) {
  const ServerProcess& server = Start({});
  v1::GenerateRequest request = Request("In the beginning God created", 60);
  request.mutable_sampling()->set_temperature(0);
  const Heard heard = Caller(server.address()).Generate(request);
  ASSERT_TRUE(heard.status.ok()) << heard.status.error_message();
  EXPECT_THAT(heard.text, testing::HasSubstr("the "));
  EXPECT_EQ(heard.usage.completion_tokens(), heard.ids.size());
  EXPECT_EQ(heard.usage.total_tokens(),
            heard.usage.prompt_tokens() + heard.ids.size());
}

TEST_F(DemoModelTest, ServesInt8WeightsIfToldToAndSaysSo) {
  const ServerProcess& server = Start({"--weights=int8"});
  Caller caller(server.address());
  const v1::ServerInfo info = caller.Info();
  EXPECT_EQ(info.weights_type(), "int8");
  EXPECT_EQ(info.cache_type(), "bfloat16");
  EXPECT_THAT(info.numerics(), testing::HasSubstr("/weights=int8/"));
  v1::GenerateRequest request = Request("In the beginning God created", 60);
  request.mutable_sampling()->set_temperature(0);
  const Heard heard = caller.Generate(request);
  ASSERT_TRUE(heard.status.ok()) << heard.status.error_message();
  EXPECT_THAT(heard.text, testing::HasSubstr("the "));
}

TEST_F(DemoModelTest, AUnaryCallGivesWhatAStreamGives) {
  const ServerProcess& server = Start({});
  Caller caller(server.address());
  for (int n = 0; n < 12; ++n) {
    const Heard stream = caller.Generate(NumberedRequest(n));
    grpc::ClientContext context;
    v1::GenerateResult result;
    ASSERT_TRUE(caller.inference()
                    .GenerateUnary(&context, NumberedRequest(n), &result)
                    .ok());
    ASSERT_EQ(result.outputs_size(), 1);
    EXPECT_EQ(result.outputs(0).text(), stream.text);
    ASSERT_EQ(result.outputs(0).tokens_size(),
              static_cast<int>(stream.ids.size()));
    for (size_t t = 0; t < stream.ids.size(); ++t) {
      EXPECT_EQ(result.outputs(0).tokens(t).id(), stream.ids[t]);
      EXPECT_EQ(result.outputs(0).tokens(t).logprob(), stream.logprobs[t]);
    }
    EXPECT_EQ(Counts(result.usage()), Counts(stream.usage));
  }
}

// What `request` gives when its first `at` tokens were generated elsewhere,
// with what the client had heard of them before.
Heard Continue(Caller& caller, v1::GenerateRequest request, const Heard& whole,
               size_t at) {
  v1::OutputIds* prior = request.add_prior_output_ids();
  Heard heard;
  for (size_t t = 0; t < at; ++t) {
    prior->add_ids(whole.ids[t]);
    heard.ids.push_back(whole.ids[t]);
    heard.logprobs.push_back(whole.logprobs[t]);
  }
  heard.text = whole.text.substr(0, whole.text_sizes[at - 1]);
  grpc::ClientContext context;
  const auto reader = caller.inference().Generate(&context, request);
  v1::GenerateEvent event;
  while (reader->Read(&event)) heard.Take(event);
  heard.status = reader->Finish();
  EXPECT_EQ(heard.usage.prior_tokens(), at);
  heard.usage.set_prior_tokens(0);
  return heard;
}

class ContinuationTest : public DemoModelTest,
                         public testing::WithParamInterface<std::string> {};

TEST_P(ContinuationTest, GoesOnFromAnyTokenAsIfItHadNeverStopped) {
  const ServerProcess& server = Start({"--weights=" + GetParam()});
  Caller caller(server.address());
  v1::GenerateRequest request = NumberedRequest(13);
  request.mutable_sampling()->set_frequency_penalty(0.4f);
  request.mutable_stopping()->set_max_tokens(150);
  // Held back for a while, and again, and never there as a whole.
  request.mutable_stopping()->add_stop_strings(" the Lord of the rings");
  // Characters of several tokens: an accented letter is two byte pieces.
  v1::TokenizeRequest tokenize;
  tokenize.set_text("\u00e9");
  tokenize.set_add_bos(false);
  v1::TokenizeResult letter;
  grpc::ClientContext context;
  ASSERT_TRUE(caller.inference().Tokenize(&context, tokenize, &letter).ok());
  for (const uint32_t id : letter.token_ids()) {
    (*request.mutable_sampling()->mutable_logit_bias())[id] = 14;
  }
  const Heard whole = caller.Generate(request);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  ASSERT_GT(whole.ids.size(), 10u);
  ASSERT_GE(letter.token_ids_size(), 2);
  EXPECT_THAT(whole.ids, testing::Contains(letter.token_ids(0)));
  for (size_t at = 1; at < whole.ids.size(); ++at) {
    SCOPED_TRACE(at);
    ExpectEqual(Continue(caller, request, whole, at), whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, ContinuationTest,
                         testing::Values("bfloat16", "float32"),
                         [](const auto& info) { return info.param; });

TEST_F(DemoModelTest, ACancelInAnyPhaseGivesTheSlotBack) {
  const ServerProcess& server = Start({"--slots=2"});
  Caller caller(server.address());
  const auto cancel_after = [&](const v1::GenerateRequest& request, int events,
                                std::chrono::milliseconds wait) {
    grpc::ClientContext context;
    const auto reader = caller.inference().Generate(&context, request);
    v1::GenerateEvent event;
    for (int n = 0; n < events; ++n) ASSERT_TRUE(reader->Read(&event));
    std::this_thread::sleep_for(wait);
    context.TryCancel();
    while (reader->Read(&event)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  };
  v1::GenerateRequest endless = Request("Behold,", 1 << 20);
  endless.mutable_stopping()->set_ignore_eos(true);
  v1::GenerateRequest long_prompt = endless;
  for (int id = 0; id < 300000; ++id) {
    long_prompt.mutable_token_ids()->add_ids(100 + id % 50);
  }

  // Decoding, in the prompt, and with a reader that has stopped reading.
  cancel_after(endless, 20, std::chrono::milliseconds(0));
  EXPECT_TRUE(caller.WaitUntilIdle(2)) << "after a cancel while decoding";
  cancel_after(long_prompt, 0, std::chrono::milliseconds(100));
  EXPECT_TRUE(caller.WaitUntilIdle(2)) << "after a cancel in the prompt";
  cancel_after(endless, 1, std::chrono::milliseconds(1500));
  EXPECT_TRUE(caller.WaitUntilIdle(2)) << "after a cancel of a slow reader";

  // Queued: both slots are taken by others.
  grpc::ClientContext first;
  grpc::ClientContext second;
  const auto one = caller.inference().Generate(&first, endless);
  const auto two = caller.inference().Generate(&second, endless);
  v1::GenerateEvent event;
  ASSERT_TRUE(one->Read(&event) && two->Read(&event));
  std::thread queued(
      [&] { cancel_after(endless, 0, std::chrono::milliseconds(100)); });
  queued.join();
  first.TryCancel();
  second.TryCancel();
  EXPECT_TRUE(caller.WaitUntilIdle(2)) << "after a cancel in the queue";
}

TEST_F(DemoModelTest, AReaderThatStopsReadingHoldsUpNobody) {
  const ServerProcess& server = Start({"--slots=4"});
  v1::GenerateRequest endless = Request("And", 1 << 20);
  endless.mutable_stopping()->set_ignore_eos(true);
  Caller slow(server.address());
  grpc::ClientContext context;
  const auto stopped = slow.inference().Generate(&context, endless);
  v1::GenerateEvent event;
  ASSERT_TRUE(stopped->Read(&event));
  // Others come and finish meanwhile, and the server's memory stays put.
  Caller caller(server.address());
  // Each slot's memory is there once somebody has used it.
  for (int slot = 0; slot < 4; ++slot) {
    caller.Generate(Request("And it came to pass", 500));
  }
  const int64_t before = server.ResidentBytes();
  for (int n = 0; n < 5; ++n) {
    v1::GenerateRequest request = Request("And it came to pass", 1000);
    request.mutable_stopping()->set_ignore_eos(true);
    const Heard heard = caller.Generate(request);
    EXPECT_TRUE(heard.status.ok()) << heard.status.error_message();
    EXPECT_EQ(heard.ids.size(), 1000u);
  }
  EXPECT_LT(server.ResidentBytes() - before, kMostGrowth);
  // What it missed is still there for it.
  Heard rest;
  for (int n = 0; n < 3000; ++n) {
    ASSERT_TRUE(stopped->Read(&event)) << n;
    rest.Take(event);
  }
  EXPECT_TRUE(rest.in_order);
  context.TryCancel();
  EXPECT_TRUE(caller.WaitUntilIdle(4));
}

TEST_F(DemoModelTest, ADeadlineEndsARequestWherverItIs) {
  const ServerProcess& server = Start({"--slots=1"});
  Caller caller(server.address());
  v1::GenerateRequest endless = Request("And", 1 << 20);
  endless.mutable_stopping()->set_ignore_eos(true);
  std::vector<std::thread> threads;
  for (int n = 0; n < 3; ++n) {  // one decodes, two wait
    threads.emplace_back([&] {
      Caller own(server.address());
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::milliseconds(400));
      const auto reader = own.inference().Generate(&context, endless);
      v1::GenerateEvent event;
      while (reader->Read(&event)) {
      }
      EXPECT_EQ(reader->Finish().error_code(),
                grpc::StatusCode::DEADLINE_EXCEEDED);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(caller.WaitUntilIdle(1));
}

TEST_F(DemoModelTest, SigtermLetsRunningStreamsFinishAndExitsWithZero) {
  ServerProcess& server = Start({});
  Heard heard;
  std::thread stream([&] {
    v1::GenerateRequest request = Request("And", 2000);
    request.mutable_stopping()->set_ignore_eos(true);
    heard = Caller(server.address()).Generate(request);
  });
  Caller caller(server.address());
  ASSERT_TRUE(caller.WaitFor(
      [](const v1::Load& load) { return load.requests_running() > 0; }, 20));
  server.Signal(SIGTERM);
  stream.join();
  EXPECT_TRUE(heard.status.ok()) << heard.status.error_message();
  EXPECT_EQ(heard.ids.size(), 2000u);
  EXPECT_EQ(server.Wait(), 0) << server.Errors();
}

}  // namespace
}  // namespace flash
