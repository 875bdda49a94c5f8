// flash-server with a device that fails:  flash-failing-server [flags] STEPS

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "kernels/check.h"
#include "server/serving.h"
#include "tests/end_to_end/failing_backend.h"

int main(int argc, char** argv) {
  using namespace flash;
  const auto arguments = ReadCommandLineOrExit(ServerProgram(), argc, argv);
  int64_t steps = 0;
  FLASH_CHECK(arguments.size() == 1 && absl::SimpleAtoi(arguments[0], &steps));
  const auto config = ServerConfigFromFlags();
  FLASH_CHECK(config.ok());
  HoldStopSignals();
  auto device = MakeDevice(*config);
  FLASH_CHECK(device.ok());
  device->backend =
      std::make_unique<FailingBackend>(std::move(device->backend), steps);
  return ServeUntilStopped(*config, *std::move(device));
}
