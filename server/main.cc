// flash-server: its flags, its device, and then it serves.

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/command_line/command_line.h"
#include "server/device.h"
#include "server/log.h"
#include "server/server_config.h"
#include "server/serving.h"

namespace flash {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

void WarnOfUnknownVariables() {
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    names.push_back(std::string(*variable, std::strcspn(*variable, "=")));
  }
  const auto unknown = UnknownVariables(ServerProgram(), names);
  if (unknown.empty()) return;
  Log(absl::StrCat(
      "the environment has what is no setting and is passed over: ",
      absl::StrJoin(unknown, ", "), "; see --help"));
}

int Fail(const absl::Status& status, int exit_code) {
  Log(std::string(status.message()));
  return exit_code;
}

int RunServer(int argc, char** argv) {
  // gRPC's own words about a port that is taken, beside our sentence.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  const auto arguments = ReadCommandLineOrExit(ServerProgram(), argc, argv);
  if (!arguments.empty()) {
    Log(absl::StrCat("\"", arguments[0], "\" is not a flag; see --help"));
    return kWrongUsage;
  }
  const auto config = ServerConfigFromFlags();
  if (!config.ok()) return Fail(config.status(), kWrongUsage);
  HoldStopSignals();  // before the first line of the log, whose thread has them
  WarnOfUnknownVariables();
  auto device = MakeDevice(*config);
  if (!device.ok()) return Fail(device.status(), kFailed);
  return ServeUntilStopped(*config, *std::move(device));
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::RunServer(argc, argv); }
