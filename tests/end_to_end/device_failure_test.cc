// The device fails in the middle of streams: who resumes goes on elsewhere with
// the same bits, who does not is told, and the process ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/error_text.h"
#include "client/resuming_client.h"
#include "tests/end_to_end/caller.h"
#include "tests/end_to_end/server_process.h"

namespace flash {
namespace {

using testing::HasSubstr;

constexpr char kDemo[] = "--model=" FLASH_SOURCE_DIR "/deploy/models/demo";
constexpr char kGoodSteps[] = "150";
constexpr int kTokens = 300;

class DeviceFailureTest : public testing::Test {
 protected:
  DeviceFailureTest()
      : failing_({kDemo, "--slots=4", "--device=cpu", kGoodSteps},
                 "flash-failing-server") {
    EXPECT_TRUE(failing_.WaitUntilServing()) << failing_.Errors();
  }

  static v1::GenerateRequest NumberedRequest(int n) {
    v1::GenerateRequest request;
    request.set_text("Chapter " + std::to_string(n) + ".");
    request.mutable_sampling()->set_seed(n);
    request.mutable_stopping()->set_max_tokens(kTokens);
    request.mutable_stopping()->set_ignore_eos(true);
    return request;
  }

  void ExpectThatItEndedAndSaidWhy() {
    EXPECT_EQ(failing_.Wait(), 1);
    EXPECT_THAT(failing_.Errors(),
                HasSubstr("flash-server: the device has failed, so this server "
                          "ends and has to be started again: it fell off the "
                          "bus\n"));
  }

  ServerProcess failing_;
};

TEST_F(DeviceFailureTest, EndsTheServerAndTellsWhatRanAndWhatWaited) {
  // Four run, and two wait for a slot.
  std::vector<Heard> heard(6);
  std::vector<std::thread> clients;
  for (int n = 0; n < 6; ++n) {
    clients.emplace_back([this, n, &heard] {
      heard[n] = Caller(failing_.address()).Generate(NumberedRequest(n));
    });
  }
  for (std::thread& client : clients) client.join();
  int num_running = 0;
  for (const Heard& each : heard) {
    EXPECT_EQ(ErrorReason(each.status), "DEVICE_FAILED")
        << ErrorText(each.status);
    if (each.status.error_code() == grpc::StatusCode::INTERNAL) ++num_running;
    EXPECT_LT(each.ids.size(), size_t{kTokens});
  }
  EXPECT_EQ(num_running, 4);
  ExpectThatItEndedAndSaidWhy();
}

TEST_F(DeviceFailureTest, StreamsGoOnElsewhereWithTheSameBits) {
  ServerProcess other({kDemo, "--slots=4", "--device=cpu"});
  ASSERT_TRUE(other.WaitUntilServing()) << other.Errors();
  std::vector<Heard> heard(4);
  std::vector<int> num_resumptions(4, 0);
  std::vector<std::thread> clients;
  for (int n = 0; n < 4; ++n) {
    clients.emplace_back([&, n] {
      ResumingClient client({failing_.address(), other.address()});
      CancellableCall call;
      heard[n].status = client.Generate(
          NumberedRequest(n), call,
          [&](const v1::GenerateEvent& event) { heard[n].Take(event); },
          [&](const Resumption&) { ++num_resumptions[n]; });
    });
  }
  for (std::thread& client : clients) client.join();
  for (int n = 0; n < 4; ++n) {
    SCOPED_TRACE(n);
    EXPECT_TRUE(heard[n].status.ok()) << ErrorText(heard[n].status);
    EXPECT_TRUE(heard[n].in_order);
    EXPECT_EQ(num_resumptions[n], 1);
    const Heard whole = Caller(other.address()).Generate(NumberedRequest(n));
    EXPECT_EQ(heard[n].ids, whole.ids);
    EXPECT_EQ(heard[n].text, whole.text);
  }
  ExpectThatItEndedAndSaidWhy();
}

}  // namespace
}  // namespace flash
