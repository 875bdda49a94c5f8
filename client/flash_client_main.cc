// flash-client: talks to a server, for people and scripts.

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "client/chat_command.h"
#include "client/client_flags.h"
#include "client/client_output.h"
#include "client/client_program.h"
#include "client/interrupts.h"
#include "client/open_line.h"
#include "client/resuming_client.h"
#include "client/session_commands.h"

namespace flash {
namespace {

// OK once the server may be asked.
grpc::Status Wait(FlashClient& client, const ClientConfig& config) {
  return config.wait.count() > 0 ? client.WaitUntilServing(config.wait)
                                 : grpc::Status::OK;
}

// Tells, on the standard error, what the text was saved as.
void SaySession(const v1::GenerateEvent& event) {
  if (!event.finished().has_session()) return;
  const v1::Session& session = event.finished().session();
  std::fprintf(stderr, "%s: session %s (%llu tokens)\n", kClientName,
               session.id().c_str(),
               static_cast<unsigned long long>(session.num_tokens()));
}

int Generate(ResumingClient& client, const ClientConfig& config,
             CancellableCall& call) {
  const auto request = GenerateRequestFromFlags();
  if (!request.ok()) return Complain(kClientName, request.status());
  grpc::Status status = Wait(client.server(), config);
  if (!status.ok()) return Fail(status);
  const bool json = config.output == OutputFormat::kJson;
  uint64_t seed = 0;
  absl::Status printed;
  OpenLine line;
  status = client.Generate(
      *request, call,
      [&](const v1::GenerateEvent& event) {
        if (event.has_accepted()) seed = event.accepted().seed();
        if (!printed.ok()) return;
        const std::string text =
            json ? EventJson(event, seed) : EventText(event);
        printed = WriteOut(text);
        if (!printed.ok()) call.Cancel();
        line.Wrote(text);
        if (!json) SaySession(event);
      },
      [&line](const Resumption& resumption) {
        line.End();
        SayWhereItGoesOn(resumption);
      });
  line.End();
  // This is why the call was cancelled, so it is what there is to tell.
  if (!printed.ok()) return Complain(kClientName, printed);
  return status.ok() ? 0 : Fail(status);
}

int Score(FlashClient& client, const ClientConfig& config,
          CancellableCall& call) {
  const auto request = ScoreRequestFromFlags();
  if (!request.ok()) return Complain(kClientName, request.status());
  v1::ScoreResult result;
  grpc::Status status = Wait(client, config);
  if (status.ok()) status = client.Score(*request, call, result);
  if (!status.ok()) return Fail(status);
  return Print(config.output == OutputFormat::kJson ? ScoreJson(result)
                                                    : ScoreText(result));
}

int Info(FlashClient& client, const ClientConfig& config,
         CancellableCall& call) {
  v1::ServerInfo server;
  v1::ModelInfo model;
  grpc::Status status = Wait(client, config);
  if (status.ok()) status = client.GetServerInfo(call, server);
  if (status.ok()) status = client.GetModelInfo(call, model);
  if (!status.ok()) return Fail(status);
  return Print(config.output == OutputFormat::kJson ? InfoJson(server, model)
                                                    : InfoText(server, model));
}

int RunCommand(const std::string& command, const ClientConfig& config,
               ResumingClient& client, CancellableCall& call) {
  if (command == "generate") return Generate(client, config, call);
  FlashClient& server = client.server();
  if (command == "score") return Score(server, config, call);
  if (command == "info") return Info(server, config, call);
  const grpc::Status status = Wait(server, config);
  if (!status.ok()) return Fail(status);
  return RunSessionCommand(command, config, server, call);
}

int ClientMain(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  signal(SIGPIPE, SIG_IGN);
  const auto arguments = ReadCommandLineOrExit(ClientProgram(), argc, argv);
  const auto config = ClientConfigFromFlags();
  if (!config.ok()) return Complain(kClientName, config.status());
  Interrupts interrupts;
  ResumingClient client(config->servers, config->resume);
  const std::string command = absl::StrJoin(arguments, " ");
  if (command == "chat") {
    const grpc::Status status = Wait(client.server(), *config);
    return status.ok() ? RunChat(*config, client, interrupts) : Fail(status);
  }
  CancellableCall call(config->timeout);
  interrupts.Call([&call] { call.Cancel(); });
  const int exit_code = RunCommand(command, *config, client, call);
  interrupts.Call([] {});  // `call` ends here
  return exit_code;
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::ClientMain(argc, argv); }
