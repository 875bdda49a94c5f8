#include "client/chat_command.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/chat.h"
#include "client/client_output.h"
#include "client/client_program.h"
#include "client/open_line.h"

namespace flash {
namespace {

// How to go on with the session another time; nothing, if there is none.
void SayHowToGoOn(const ClientConfig& config, const Chat& chat) {
  if (chat.session().empty()) return;
  std::fprintf(stderr, "go on with: %s chat --server=%s --session=%s\n",
               kClientName, absl::StrJoin(config.servers, ",").c_str(),
               chat.session().c_str());
}

class Conversation {
 public:
  Conversation(const ClientConfig& config, ChatSettings settings,
               ResumingClient& client, Interrupts& interrupts)
      : config_(config),
        chat_(std::move(settings), &client),
        interrupts_(interrupts),
        is_terminal_(isatty(STDIN_FILENO) != 0) {}

  int Run() {
    int exit_code = 0;
    std::string line;
    while (exit_code == 0 && ReadLine(line)) exit_code = Answer(line);
    // A terminal shows no line end for Ctrl-D.
    if (is_terminal_ && exit_code == 0) std::fputc('\n', stderr);
    SayHowToGoOn(config_, chat_);
    return exit_code;
  }

 private:
  // False at the end.
  bool ReadLine(std::string& line) {
    interrupts_.Call([this] {  // there is no answer to cancel: as Ctrl-D
      std::fputc('\n', stderr);
      SayHowToGoOn(config_, chat_);
      std::_Exit(0);
    });
    if (is_terminal_) std::fputs("> ", stderr);
    return static_cast<bool>(std::getline(std::cin, line));
  }

  // Not 0 if the chat is over.
  int Answer(const std::string& line) {
    CancellableCall call(config_.timeout);
    interrupts_.Call([&call] { call.Cancel(); });
    absl::Status printed;
    uint64_t seed = 0;
    OpenLine open;
    const grpc::Status status = chat_.Say(
        line, call,
        [&](const v1::GenerateEvent& event) {
          if (event.has_accepted()) seed = event.accepted().seed();
          if (!printed.ok()) return;
          const std::string text = config_.output == OutputFormat::kJson
                                       ? EventJson(event, seed)
                                       : EventText(event);
          printed = WriteOut(text);
          if (!printed.ok()) call.Cancel();
          open.Wrote(text);
        },
        [&open](const Resumption& resumption) {
          open.End();
          SayWhereItGoesOn(resumption);
        });
    interrupts_.Call([] {});  // `call` ends here
    if (!printed.ok()) return Complain(kClientName, printed);
    if (status.ok()) return 0;
    if (is_terminal_) {  // which may show ^C, whatever was answered
      std::fputc('\n', stderr);
    } else {
      open.End();
    }
    const int exit_code = Fail(status);
    return is_terminal_ ? 0 : exit_code;
  }

  const ClientConfig& config_;
  Chat chat_;
  Interrupts& interrupts_;
  const bool is_terminal_;
};

}  // namespace

int RunChat(const ClientConfig& config, ResumingClient& client,
            Interrupts& interrupts) {
  auto settings = ChatSettingsFromFlags();
  if (!settings.ok()) return Complain(kClientName, settings.status());
  return Conversation(config, *std::move(settings), client, interrupts).Run();
}

}  // namespace flash
