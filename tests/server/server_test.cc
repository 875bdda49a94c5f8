// The whole server on a card, which is emulated: what it tells of it, what it
// says, and what becomes of everybody when the card fails.

#include "server/server.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/reflection.h"
#include "client/error_text.h"
#include "client/flash_client.h"
#include "gmock/gmock.h"
#include "kernels/mutex.h"
#include "tests/cuda_emulator/emulator.h"

namespace flash {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::SizeIs;

constexpr char kModel[] = "--model=" FLASH_SOURCE_DIR "/tests/cases/paper";

ServerConfig Config(const std::string& device) {
  const absl::FlagSaver saver;
  const auto line = ReadCommandLine(
      ServerProgram(),
      {kModel, "--listen=127.0.0.1:0", "--metrics_listen=", "--threads=1",
       "--max_step_rows=16", "--weights=float32", "--device=" + device},
      [](const char*) -> const char* { return nullptr; });
  EXPECT_TRUE(line.ok()) << line.status();
  auto config = ServerConfigFromFlags();
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

v1::GenerateRequest ShortRequest(int max_tokens) {
  v1::GenerateRequest request;
  for (uint32_t id = 1; id < 20; ++id) {
    request.mutable_token_ids()->add_ids(id);
  }
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  return request;
}

struct Answer {
  grpc::Status status;
  std::vector<uint32_t> ids;
};

class ServerOnACardTest : public testing::Test {
 protected:
  ServerOnACardTest() { cuda_emulator::SetMachine({}); }
  ~ServerOnACardTest() override { cuda_emulator::SetMachine({}); }

  void Serve(const ServerConfig& config) {
    auto device = MakeDevice(config);
    ASSERT_TRUE(device.ok()) << device.status();
    auto server = Server::Create(config, *std::move(device),
                                 [this](const absl::Status& why) {
                                   MutexLock lock(&mutex_);
                                   failures_.push_back(why);
                                 });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<FlashClient>(server_->address());
  }

  v1::ServerInfo Info() {
    v1::ServerInfo info;
    CancellableCall call;
    EXPECT_TRUE(client_->GetServerInfo(call, info).ok());
    return info;
  }

  Answer Generate(const v1::GenerateRequest& request) {
    Answer answer;
    CancellableCall call;
    answer.status =
        client_->Generate(request, call, [&](const v1::GenerateEvent& event) {
          if (event.has_token()) {
            answer.ids.push_back(event.token().token().id());
          }
        });
    return answer;
  }

  std::vector<absl::Status> failures() {
    MutexLock lock(&mutex_);
    return failures_;
  }

  std::unique_ptr<Server> server_;
  std::unique_ptr<FlashClient> client_;

 private:
  Mutex mutex_;
  std::vector<absl::Status> failures_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(ServerOnACardTest, TellsWhichOneItIs) {
  Serve(Config("auto"));
  const CudaDevice card = CudaDevices()->front();
  const v1::ServerInfo info = Info();
  EXPECT_EQ(info.device(), "cuda");
  EXPECT_EQ(info.device_name(), card.name);
  EXPECT_THAT(info.instruction_set(), testing::StartsWith("sm_"));
  // Another kind of card, or of library, does not give the same bits.
  EXPECT_THAT(info.numerics(), HasSubstr("/cuda "));
  EXPECT_THAT(info.numerics(), HasSubstr(card.name));
  EXPECT_THAT(info.numerics(), HasSubstr("cuBLASLt"));
  EXPECT_THAT(server_->Describe(), HasSubstr(" on cuda "));
}

TEST_F(ServerOnACardTest, SizesItsSlotsFromTheCardsMemory) {
  cuda_emulator::SetMachine({.device_bytes = size_t{16} << 20});
  Serve(Config("cuda"));
  const int few = static_cast<int>(Info().num_slots());
  EXPECT_GT(few, 0);
  EXPECT_LT(few, 256);
  server_.reset();
  cuda_emulator::SetMachine({});
  Serve(Config("cuda"));
  EXPECT_EQ(Info().num_slots(), 256u);
}

TEST_F(ServerOnACardTest, SaysWhatTheProcessorSays) {
  Serve(Config("cpu"));
  const Answer processor = Generate(ShortRequest(20));
  ASSERT_TRUE(processor.status.ok()) << ErrorText(processor.status);
  EXPECT_THAT(processor.ids, SizeIs(20));
  server_.reset();
  Serve(Config("cuda"));
  const Answer card = Generate(ShortRequest(20));
  ASSERT_TRUE(card.status.ok()) << ErrorText(card.status);
  // By far the likeliest ids: bits differ, but not so much.
  EXPECT_EQ(card.ids, processor.ids);
}

TEST_F(ServerOnACardTest, EndsWhatRunsWhenTheCardFails) {
  Serve(Config("cuda"));
  ASSERT_TRUE(Generate(ShortRequest(2)).status.ok());
  cuda_emulator::FailCall(300, cudaErrorLaunchFailure, /*sticky=*/true);
  const Answer running = Generate(ShortRequest(2000));
  EXPECT_EQ(running.status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(ErrorReason(running.status), "DEVICE_FAILED");
  EXPECT_LT(running.ids.size(), 2000u);
  const Answer later = Generate(ShortRequest(2));
  EXPECT_EQ(later.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ErrorReason(later.status), "DEVICE_FAILED");
  server_->Drain();
  ASSERT_THAT(failures(), SizeIs(1));
  // Whichever call it was: cuBLAS has words of its own.
  EXPECT_THAT(std::string(failures()[0].message()),
              AnyOf(HasSubstr(cudaGetErrorString(cudaErrorLaunchFailure)),
                    HasSubstr("CUBLAS_STATUS_EXECUTION_FAILED")));
}

TEST_F(ServerOnACardTest, RefusesAModelThatTheCardHasNoRoomFor) {
  cuda_emulator::SetMachine({.device_bytes = size_t{1} << 16});
  const ServerConfig config = Config("cuda");
  auto device = MakeDevice(config);
  ASSERT_TRUE(device.ok()) << device.status();
  const auto server = Server::Create(config, *std::move(device), nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(server.status())) << server.status();
}

TEST_F(ServerOnACardTest, AutoTakesTheProcessorWhereThereIsNoCard) {
  cuda_emulator::SetMachine({.num_devices = 0});
  const auto device = MakeDevice(Config("auto"));
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->kind, "cpu");
  EXPECT_THAT(device->why_no_card,
              HasSubstr(cudaGetErrorString(cudaErrorNoDevice)));
}

}  // namespace
}  // namespace flash
