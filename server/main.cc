// flash-server: parse, load, serve; drain when told to stop.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/command_line/command_line.h"
#include "server/log.h"
#include "server/server.h"
#include "server/server_config.h"

namespace flash {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// Written under another name first, so that whoever waits for the file finds
// all of it.
absl::Status WritePortFile(const std::string& path, const std::string& text) {
  std::error_code error;
  const auto there = std::filesystem::symlink_status(path, error);
  if (std::filesystem::exists(there) &&
      !std::filesystem::is_regular_file(there)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--port_file is \"", path,
                     "\", which is there and is not a plain file"));
  }
  const std::string temporary = absl::StrCat(path, ".", getpid());
  std::ofstream file(temporary);
  file << text << "\n";
  file.close();
  if (file) std::filesystem::rename(temporary, path, error);
  if (!file || error) {
    std::filesystem::remove(temporary, error);
    return absl::UnavailableError(
        absl::StrCat("--port_file is \"", path, "\", which cannot be written"));
  }
  return absl::OkStatus();
}

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Returns when the process is told to stop; from then on a second signal ends
// it at once.
void WaitForStop(const sigset_t& signals) {
  int signal = 0;
  sigwait(&signals, &signal);
  std::thread([signals] {
    int again = 0;
    sigwait(&signals, &again);
    Log("told to stop again: ending at once");
    std::_Exit(kFailed);
  }).detach();
}

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
  WarnOfUnknownVariables();

  // Blocked in every thread, so that WaitForStop() gets them.
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::atomic<bool> device_failed{false};
  auto server =
      Server::Create(*config, [&device_failed](const absl::Status& why) {
        Log(absl::StrCat("the device failed: ", why.message()));
        device_failed.store(true);
        kill(getpid(), SIGTERM);
      });
  if (!server.ok()) return Fail(server.status(), kFailed);
  Log((*server)->Describe());
  if (!config->port_file.empty()) {
    const absl::Status written =
        WritePortFile(config->port_file, (*server)->address());
    if (!written.ok()) return Fail(written, kFailed);
  }
  Log(absl::StrCat("serving on ", (*server)->address()));
  WaitForStop(signals);
  Log("told to stop: finishing what runs");
  (*server)->Drain();
  if (!config->port_file.empty()) {
    std::error_code error;
    std::filesystem::remove(config->port_file, error);
  }
  const int exit_code = device_failed.load() ? kFailed : 0;
  // Lines that nobody reads would be waited for at the end of the program.
  if (!Log("stopped")) std::_Exit(exit_code);
  return exit_code;
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::RunServer(argc, argv); }
