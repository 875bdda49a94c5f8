// flash-client chat: lines from the standard input, answers to the standard
// output.

#ifndef CLIENT_CHAT_COMMAND_H_
#define CLIENT_CHAT_COMMAND_H_

#include "client/client_flags.h"
#include "client/interrupts.h"
#include "client/resuming_client.h"

namespace flash {

// Returns the program's exit code. At a terminal an answer that fails is told
// and the next line awaited; elsewhere it ends the chat, as what follows may
// build on it.
int RunChat(const ClientConfig& config, ResumingClient& client,
            Interrupts& interrupts);

}  // namespace flash

#endif  // CLIENT_CHAT_COMMAND_H_
