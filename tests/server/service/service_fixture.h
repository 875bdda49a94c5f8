// The whole service over a FakeModel, in this process, with a real client.

#ifndef TESTS_SERVER_SERVICE_SERVICE_FIXTURE_H_
#define TESTS_SERVER_SERVICE_SERVICE_FIXTURE_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "flash/v1/control.grpc.pb.h"
#include "flash/v1/inference.grpc.pb.h"
#include "flash/v1/sessions.grpc.pb.h"
#include "gtest/gtest.h"
#include "kernels/mutex.h"
#include "server/scheduler/engine.h"
#include "server/service/grpc_server.h"
#include "server/sessions/blob_store.h"
#include "server/sessions/checkpoint_keeper.h"
#include "server/sessions/prefix_cache.h"
#include "server/sessions/sessions.h"
#include "server/sessions/snapshot_codec.h"
#include "server/tokenizer/byte_tokenizer.h"
#include "tests/server/scheduler/fake_model.h"

namespace flash {

inline constexpr int32_t kBos = 256;
inline constexpr int32_t kEos = 0;

// Of a model of bytes: 256 pieces, BOS, and three ids of padding.
inline ModelFacts ByteModelFacts() {
  ModelFacts facts;
  facts.name = "bytes";
  facts.vocab_size = 260;
  facts.num_pieces = 256;
  facts.chunk_size = 8;
  facts.bos_token_id = kBos;
  facts.eos_token_ids = {kEos};
  facts.has_text = true;
  facts.tokenizer = "bytes";
  return facts;
}

// A stream's events, and how it ended.
struct StreamAnswer {
  std::vector<v1::GenerateEvent> events;
  grpc::Status status;

  std::string Text(uint32_t output = 0) const {
    std::string text;
    for (const auto& event : events) {
      if (event.has_token() && event.token().output_index() == output) {
        text += event.token().text();
      }
      if (event.has_finished() && event.finished().output_index() == output) {
        text += event.finished().text();
      }
    }
    return text;
  }
  // Of the session that an output was saved to; empty if it was not.
  std::string SessionId(uint32_t output = 0) const {
    for (const auto& event : events) {
      if (event.has_finished() && event.finished().output_index() == output) {
        return event.finished().session().id();
      }
    }
    return "";
  }
  std::vector<uint32_t> Ids(uint32_t output = 0) const {
    std::vector<uint32_t> ids;
    for (const auto& event : events) {
      if (event.has_token() && event.token().output_index() == output) {
        ids.push_back(event.token().token().id());
      }
    }
    return ids;
  }
};

// What a test waits at most: long, since a sanitizer makes everything slow, and
// nobody waits so long unless something is broken.
constexpr std::chrono::seconds kPatience(120);

class ServiceTest : public testing::Test {
 protected:
  struct Setup {
    FakeModel::Sizes sizes;
    EngineOptions engine;
    GrpcServerOptions server;
    std::function<void()> before_step;
    // Where sessions are kept; null: there are none.
    std::unique_ptr<BlobStore> store;
    Sessions::Options sessions;
    // More than 0: there are checkpoints, in `store`, and a prefix cache.
    int64_t checkpoint_every_tokens = 0;
  };

  ServiceTest() {
    setup_.engine.eos_token_ids = {kEos};
    setup_.server.model = ByteModelFacts();
    setup_.server.listen = "127.0.0.1:0";
    setup_.server.report = [this](const CallReport& report) {
      MutexLock lock(&mutex_);
      reports_.push_back(report);
    };
  }
  ~ServiceTest() override { Stop(); }

  // Serves with what a test has put into setup_.
  void Start() {
    model_ = std::make_unique<FakeModel>(setup_.sizes);
    // Lower-case letters are likelier than anything else, so that texts are
    // ASCII and long.
    model_->bias.assign(setup_.sizes.vocab_size, -50);
    for (int id = 'a'; id <= 'z'; ++id) model_->bias[id] = 0;
    model_->before_step = setup_.before_step;
    if (setup_.checkpoint_every_tokens > 0) StartCheckpoints();
    auto engine = Engine::Create(setup_.engine, model_.get(), &tokenizer_, {});
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    if (setup_.store != nullptr) {
      sessions_ = std::make_unique<Sessions>(setup_.sessions,
                                             setup_.store.get(), &codec_);
      setup_.server.sessions = sessions_.get();
    }
    auto server = GrpcServer::Start(setup_.server, engine_.get(), &tokenizer_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = NewChannel();
    inference_ = v1::Inference::NewStub(channel_);
    control_ = v1::Control::NewStub(channel_);
    kept_ = v1::Sessions::NewStub(channel_);
  }

  void Stop() {
    server_.reset();
    engine_.reset();
    sessions_.reset();
    checkpoints_.reset();
    prefix_cache_.reset();
  }

  std::string address() const {
    return "127.0.0.1:" + std::to_string(server_->port());
  }
  std::shared_ptr<grpc::Channel> NewChannel() const {
    return grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
  }

  StreamAnswer Stream(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    return Stream(request, context);
  }
  StreamAnswer Stream(const v1::GenerateRequest& request,
                      grpc::ClientContext& context) {
    StreamAnswer answer;
    auto reader = inference_->Generate(&context, request);
    v1::GenerateEvent event;
    while (reader->Read(&event)) answer.events.push_back(event);
    answer.status = reader->Finish();
    return answer;
  }

  grpc::Status Unary(const v1::GenerateRequest& request,
                     v1::GenerateResult* result) {
    grpc::ClientContext context;
    return inference_->GenerateUnary(&context, request, result);
  }

  // Waits until `condition`, which is about the engine, holds.
  bool Eventually(const std::function<bool(const EngineStats&)>& condition) {
    const auto deadline = Clock::now() + kPatience;
    while (Clock::now() < deadline) {
      if (condition(engine_->stats())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

  std::vector<CallReport> reports() {
    MutexLock lock(&mutex_);
    return reports_;
  }

  Setup setup_;
  ByteTokenizer tokenizer_;
  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<Engine> engine_;
  const SnapshotCodec codec_{{.model = "fake",
                              .tokenizer = "bytes",
                              .state_format = "fake",
                              .numerics = "exact"},
                             SnapshotCompression::kNone,
                             {.num_ids = 260}};
  std::unique_ptr<PrefixCache> prefix_cache_;
  std::unique_ptr<CheckpointKeeper> checkpoints_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Control::Stub> control_;
  std::unique_ptr<v1::Sessions::Stub> kept_;

 private:
  void StartCheckpoints() {
    prefix_cache_ = std::make_unique<PrefixCache>(
        PrefixCache::Options{.max_bytes = 1 << 20,
                             .chunk_size = setup_.sizes.chunk_size,
                             .fingerprint = "fake"});
    checkpoints_ = std::make_unique<CheckpointKeeper>(
        CheckpointKeeper::Options(), setup_.store.get());
    setup_.engine.prefix_states = prefix_cache_.get();
    setup_.engine.checkpoints = checkpoints_.get();
    setup_.engine.checkpoint_every_tokens = setup_.checkpoint_every_tokens;
    setup_.server.prefix_cache = prefix_cache_.get();
    setup_.server.checkpoints = checkpoints_.get();
  }

  Mutex mutex_;
  std::vector<CallReport> reports_ ABSL_GUARDED_BY(mutex_);
};

inline v1::GenerateRequest TextRequest(const std::string& text,
                                       uint64_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  request.mutable_sampling()->set_seed(17);
  return request;
}

}  // namespace flash

#endif  // TESTS_SERVER_SERVICE_SERVICE_FIXTURE_H_
