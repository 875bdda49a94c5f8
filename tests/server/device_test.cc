#include "server/device.h"

#include "gmock/gmock.h"

namespace flash {
namespace {

using testing::HasSubstr;

std::vector<CudaDevice> Cards() {
  return {{.index = 0, .name = "a", .free_bytes = 100},
          {.index = 1, .name = "b", .free_bytes = 300},
          {.index = 2, .name = "c", .free_bytes = 300}};
}

TEST(DeviceTest, OfSeveralCardsTakesTheOneWithTheMostFreeMemory) {
  EXPECT_EQ(CardWithMostFreeMemory(Cards()).name, "b");
}

TEST(DeviceTest, TheProcessorAsksForNoReason) {
  ServerConfig config;
  config.device = ServerConfig::Device::kCpu;
  config.threads = 2;
  config.cpu_isa = "portable";
  const auto device = MakeDevice(config);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->kind, "cpu");
  EXPECT_EQ(device->kernels, "portable");
  EXPECT_EQ(device->numerics, "cpu/portable");
  EXPECT_EQ(device->why_no_card, "");
  EXPECT_EQ(device->threads->num_threads(), 2);
  EXPECT_EQ(device->free_card_bytes, nullptr);
}

TEST(DeviceTest, AutoIsTheCardOrElseTheProcessorAndAReason) {
  ServerConfig config;
  config.cpu_isa = "auto";
  const auto device = MakeDevice(config);
  ASSERT_TRUE(device.ok()) << device.status();
  const auto cards = CudaDevices();
  if (cards.ok()) {
    EXPECT_EQ(device->kind, "cuda");
    EXPECT_EQ(device->name, CardWithMostFreeMemory(*cards).name);
    EXPECT_GT(device->free_card_bytes(), 0);
  } else {
    EXPECT_EQ(device->kind, "cpu");
    EXPECT_EQ(device->why_no_card, std::string(cards.status().message()));
    EXPECT_EQ(device->free_card_bytes, nullptr);
  }
}

TEST(DeviceTest, ACardThatIsAskedForAndNotThereIsAFault) {
  ServerConfig config;
  config.device = ServerConfig::Device::kCuda;
  config.card = 1023;
  const auto device = MakeDevice(config);
  EXPECT_TRUE(absl::IsUnavailable(device.status()));
  EXPECT_THAT(std::string(device.status().message()),
              HasSubstr("--device is \"cuda:1023\": "));
}

}  // namespace
}  // namespace flash
