// flash-client: one call to a server, for people and scripts.

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/client_flags.h"
#include "client/client_output.h"
#include "client/error_text.h"
#include "client/flash_client.h"

namespace flash {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

int Complain(const std::string& sentence, int exit_code) {
  std::fprintf(stderr, "flash-client: %s\n", sentence.c_str());
  return exit_code;
}

// At once, so that a pipe sees text as it comes. False if nobody reads.
bool Print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

// Cancels `call` on Ctrl-C; a second one ends the program. To be called before
// there are threads, which would take the signal. `call` lives until the end.
void CancelOnInterrupt(CancellableCall* call) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, call] {
    int signal = 0;
    sigwait(&signals, &signal);
    call->Cancel();
    sigwait(&signals, &signal);
    std::_Exit(kFailed);
  }).detach();
}

int Finish(const grpc::Status& status) {
  return status.ok() ? 0 : Complain(ErrorText(status), kFailed);
}

int Generate(FlashClient& client, const ClientConfig& config,
             CancellableCall& call) {
  const auto request = GenerateRequestFromFlags();
  if (!request.ok()) {
    return Complain(std::string(request.status().message()), kWrongUsage);
  }
  uint64_t seed = 0;
  return Finish(
      client.Generate(*request, call, [&](const v1::GenerateEvent& event) {
        if (event.has_accepted()) seed = event.accepted().seed();
        if (!Print(config.output == OutputFormat::kJson ? EventJson(event, seed)
                                                        : EventText(event))) {
          call.Cancel();
        }
      }));
}

int Score(FlashClient& client, const ClientConfig& config,
          CancellableCall& call) {
  const auto request = ScoreRequestFromFlags();
  if (!request.ok()) {
    return Complain(std::string(request.status().message()), kWrongUsage);
  }
  v1::ScoreResult result;
  const grpc::Status status = client.Score(*request, call, result);
  if (status.ok()) {
    Print(config.output == OutputFormat::kJson ? ScoreJson(result)
                                               : ScoreText(result));
  }
  return Finish(status);
}

int Info(FlashClient& client, const ClientConfig& config) {
  v1::ServerInfo server;
  v1::ModelInfo model;
  grpc::Status status = client.GetServerInfo(server);
  if (status.ok()) status = client.GetModelInfo(model);
  if (status.ok()) {
    Print(config.output == OutputFormat::kJson ? InfoJson(server, model)
                                               : InfoText(server, model));
  }
  return Finish(status);
}

int ClientMain(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  signal(SIGPIPE, SIG_IGN);
  const auto arguments = ReadCommandLineOrExit(ClientProgram(), argc, argv);
  const auto config = ClientConfigFromFlags();
  if (!config.ok()) {
    return Complain(std::string(config.status().message()), kWrongUsage);
  }
  if (arguments.size() != 1) {
    return Complain("say one of generate, score and info; see --help",
                    kWrongUsage);
  }
  CancellableCall call(config->timeout);
  CancelOnInterrupt(&call);
  FlashClient client(config->server);
  if (config->wait.count() > 0) {
    const grpc::Status serving = client.WaitUntilServing(config->wait);
    if (!serving.ok()) return Finish(serving);
  }
  if (arguments[0] == "generate") return Generate(client, *config, call);
  if (arguments[0] == "score") return Score(client, *config, call);
  if (arguments[0] == "info") return Info(client, *config);
  return Complain(absl::StrCat("\"", arguments[0],
                               "\" is not a command; say one of generate, "
                               "score and info"),
                  kWrongUsage);
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::ClientMain(argc, argv); }
