// flash-loadtest: how a server does under a load.

#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/complain.h"
#include "client/error_text.h"
#include "client/flash_client.h"
#include "client/load_report.h"
#include "client/load_run.h"
#include "client/loadtest_flags.h"
#include "server/command_line/standard_output.h"

namespace flash {
namespace {

constexpr char kName[] = "flash-loadtest";

volatile std::sig_atomic_t interrupted = 0;

// The first SIGINT or SIGTERM ends the load, and what it came to is reported;
// the second ends the program.
void ReportWhenInterrupted() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool ShowProgress(const LoadProgress& progress) {
  if (isatty(STDERR_FILENO) != 0) {
    std::fprintf(stderr, "\r%s", ProgressLine(progress).c_str());
  }
  return interrupted == 0;
}

// Asks what is served, and whether it is.
grpc::Status Look(const LoadtestConfig& config, v1::ServerInfo& server,
                  v1::ModelInfo& model) {
  FlashClient client(config.load.server);
  if (config.wait.count() > 0) {
    const grpc::Status serving = client.WaitUntilServing(config.wait);
    if (!serving.ok()) return serving;
  }
  CancellableCall call;
  const grpc::Status status = client.GetServerInfo(call, server);
  return status.ok() ? client.GetModelInfo(call, model) : status;
}

// Writes `text` to the file of --output_json: std::ios::trunc in the place of
// what is there, std::ios::app after it.
absl::Status WriteJson(const std::string& path, std::ios::openmode mode,
                       const std::string& text) {
  std::ofstream file(path, mode);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("--output_json is \"", path, "\", which cannot be written"));
}

// Prints and writes what came out, as much of it as can be.
int Report(const LoadtestConfig& config, const LoadResult& result,
           const v1::ServerInfo& server, const v1::ModelInfo& model) {
  absl::Status status = Verdict(result, config.max_refused);
  status.Update(WriteOut(LoadTable(config.load, result)));
  if (!config.output_json.empty()) {
    const std::string json =
        LoadJson(config.load, result, server, model)
            .dump(2, ' ', false,
                  nlohmann::ordered_json::error_handler_t::replace);
    status.Update(WriteJson(config.output_json, std::ios::trunc, json + "\n"));
  }
  return status.ok() ? 0 : Complain(kName, status);
}

int LoadtestMain(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  signal(SIGPIPE, SIG_IGN);
  const auto arguments = ReadCommandLineOrExit(LoadtestProgram(), argc, argv);
  const auto config = LoadtestConfigFromFlags();
  if (!config.ok()) return Complain(kName, config.status());
  if (!arguments.empty()) {
    return Complain(kName, absl::StrCat("\"", arguments[0], "\" is not a flag"),
                    kWrongUsage);
  }
  if (!config->output_json.empty()) {
    // Better now than after the load; what is there stays until then.
    const absl::Status writable =
        WriteJson(config->output_json, std::ios::app, "");
    if (!writable.ok()) return Complain(kName, writable);
  }
  v1::ServerInfo server;
  v1::ModelInfo model;
  const grpc::Status status = Look(*config, server, model);
  if (!status.ok()) return Complain(kName, ErrorText(status), kFailed);

  ReportWhenInterrupted();
  const LoadResult result = RunLoad(config->load, model, ShowProgress);
  if (isatty(STDERR_FILENO) != 0) std::fputc('\n', stderr);
  return Report(*config, result, server, model);
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::LoadtestMain(argc, argv); }
