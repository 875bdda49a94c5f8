#include "server/serving.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/log.h"
#include "server/server.h"

namespace flash {
namespace {

constexpr int kFailed = 1;

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
void WaitForStop() {
  const sigset_t signals = StopSignals();
  int signal = 0;
  sigwait(&signals, &signal);
  std::thread([signals] {
    int again = 0;
    sigwait(&signals, &again);
    Log("told to stop again: ending at once");
    std::_Exit(kFailed);
  }).detach();
}

int Fail(const absl::Status& status) {
  Log(std::string(status.message()));
  return kFailed;
}

}  // namespace

void HoldStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int ServeUntilStopped(const ServerConfig& config, Device device) {
  const std::string why_no_card = device.why_no_card;
  std::atomic<bool> device_failed{false};
  auto server = Server::Create(
      config, std::move(device), [&device_failed](const absl::Status& why) {
        Log(
            absl::StrCat("the device has failed, so this server ends and has "
                         "to be started again: ",
                         std::string(why.message())));
        device_failed.store(true);
        kill(getpid(), SIGTERM);
      });
  if (!server.ok()) return Fail(server.status());
  if (!why_no_card.empty()) {
    Log(absl::StrCat("on the processor: ", why_no_card));
  }
  Log((*server)->Describe());
  if (!config.port_file.empty()) {
    const absl::Status written =
        WritePortFile(config.port_file, (*server)->address());
    if (!written.ok()) return Fail(written);
  }
  Log(absl::StrCat("serving on ", (*server)->address()));
  WaitForStop();
  if (!device_failed.load()) Log("told to stop: finishing what runs");
  (*server)->Drain();
  if (!config.port_file.empty()) {
    std::error_code error;
    std::filesystem::remove(config.port_file, error);
  }
  const int exit_code = device_failed.load() ? kFailed : 0;
  // Lines that nobody reads would be waited for at the end of the program.
  if (!Log("stopped")) std::_Exit(exit_code);
  return exit_code;
}

}  // namespace flash
