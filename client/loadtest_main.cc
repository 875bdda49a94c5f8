// flash-loadtest: how a server does under a load.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/error_text.h"
#include "client/flash_client.h"
#include "client/load_report.h"
#include "client/load_run.h"
#include "client/loadtest_flags.h"

namespace flash {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

int Complain(const std::string& sentence, int exit_code) {
  std::fprintf(stderr, "flash-loadtest: %s\n", sentence.c_str());
  return exit_code;
}

void ShowProgress(const LoadProgress& progress) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r%s", ProgressLine(progress).c_str());
}

// Asks what is served, and whether it is.
grpc::Status Look(const LoadtestConfig& config, v1::ServerInfo& server,
                  v1::ModelInfo& model) {
  FlashClient client(config.load.server);
  if (config.wait.count() > 0) {
    const grpc::Status serving = client.WaitUntilServing(config.wait);
    if (!serving.ok()) return serving;
  }
  const grpc::Status status = client.GetServerInfo(server);
  return status.ok() ? client.GetModelInfo(model) : status;
}

int LoadtestMain(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  const auto arguments = ReadCommandLineOrExit(LoadtestProgram(), argc, argv);
  const auto config = LoadtestConfigFromFlags();
  if (!config.ok()) {
    return Complain(std::string(config.status().message()), kWrongUsage);
  }
  if (!arguments.empty()) {
    return Complain(absl::StrCat("\"", arguments[0], "\" is not a flag"),
                    kWrongUsage);
  }
  v1::ServerInfo server;
  v1::ModelInfo model;
  const grpc::Status status = Look(*config, server, model);
  if (!status.ok()) return Complain(ErrorText(status), kFailed);

  const LoadResult result = RunLoad(config->load, model, ShowProgress);
  if (isatty(STDERR_FILENO) != 0) std::fputc('\n', stderr);
  std::fputs(LoadTable(config->load, result).c_str(), stdout);
  if (!config->output_json.empty()) {
    std::ofstream file(config->output_json);
    file << LoadJson(config->load, result, server, model).dump(2) << "\n";
    file.close();
    if (!file) {
      return Complain(absl::StrCat("--output_json is \"", config->output_json,
                                   "\", which cannot be written"),
                      kFailed);
    }
  }
  if (result.tokens == 0) return Complain("no token came back", kFailed);
  return 0;
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::LoadtestMain(argc, argv); }
