// flash-client session ...: one call to the Sessions service.

#ifndef CLIENT_SESSION_COMMANDS_H_
#define CLIENT_SESSION_COMMANDS_H_

#include <string>

#include "client/client_flags.h"
#include "client/flash_client.h"

namespace flash {

// Runs "session get" and the like, and returns the program's exit code.
// REQUIRES: `command` is one of the program's that begin with "session".
int RunSessionCommand(const std::string& command, const ClientConfig& config,
                      FlashClient& client, CancellableCall& call);

}  // namespace flash

#endif  // CLIENT_SESSION_COMMANDS_H_
