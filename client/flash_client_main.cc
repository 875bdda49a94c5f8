// flash-client: one call to a server, for people and scripts.

#include <signal.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "client/client_flags.h"
#include "client/client_output.h"
#include "client/complain.h"
#include "client/error_text.h"
#include "client/flash_client.h"
#include "server/command_line/standard_output.h"

namespace flash {
namespace {

constexpr char kName[] = "flash-client";

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

int Fail(const grpc::Status& status) {
  return Complain(kName, ErrorText(status), kFailed);
}

int Print(const std::string& text) {
  const absl::Status printed = WriteOut(text);
  return printed.ok() ? 0 : Complain(kName, printed);
}

// OK once the server may be asked.
grpc::Status Wait(FlashClient& client, const ClientConfig& config) {
  return config.wait.count() > 0 ? client.WaitUntilServing(config.wait)
                                 : grpc::Status::OK;
}

int Generate(FlashClient& client, const ClientConfig& config,
             CancellableCall& call) {
  const auto request = GenerateRequestFromFlags();
  if (!request.ok()) return Complain(kName, request.status());
  grpc::Status status = Wait(client, config);
  if (!status.ok()) return Fail(status);
  uint64_t seed = 0;
  absl::Status printed;
  status = client.Generate(*request, call, [&](const v1::GenerateEvent& event) {
    if (event.has_accepted()) seed = event.accepted().seed();
    if (!printed.ok()) return;
    printed =
        WriteOut(config.output == OutputFormat::kJson ? EventJson(event, seed)
                                                      : EventText(event));
    if (!printed.ok()) call.Cancel();
  });
  // This is why the call was cancelled, so it is what there is to tell.
  if (!printed.ok()) return Complain(kName, printed);
  return status.ok() ? 0 : Fail(status);
}

int Score(FlashClient& client, const ClientConfig& config,
          CancellableCall& call) {
  const auto request = ScoreRequestFromFlags();
  if (!request.ok()) return Complain(kName, request.status());
  v1::ScoreResult result;
  grpc::Status status = Wait(client, config);
  if (status.ok()) status = client.Score(*request, call, result);
  if (!status.ok()) return Fail(status);
  return Print(config.output == OutputFormat::kJson ? ScoreJson(result)
                                                    : ScoreText(result));
}

int Info(FlashClient& client, const ClientConfig& config) {
  v1::ServerInfo server;
  v1::ModelInfo model;
  grpc::Status status = Wait(client, config);
  if (status.ok()) status = client.GetServerInfo(server);
  if (status.ok()) status = client.GetModelInfo(model);
  if (!status.ok()) return Fail(status);
  return Print(config.output == OutputFormat::kJson ? InfoJson(server, model)
                                                    : InfoText(server, model));
}

int ClientMain(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  signal(SIGPIPE, SIG_IGN);
  const auto arguments = ReadCommandLineOrExit(ClientProgram(), argc, argv);
  const auto config = ClientConfigFromFlags();
  if (!config.ok()) return Complain(kName, config.status());
  CancellableCall call(config->timeout);
  CancelOnInterrupt(&call);
  FlashClient client(config->server);
  const std::string& command = arguments[0];  // one of the program's
  if (command == "generate") return Generate(client, *config, call);
  if (command == "score") return Score(client, *config, call);
  return Info(client, *config);
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::ClientMain(argc, argv); }
