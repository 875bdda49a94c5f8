// What flash-client can do, and the help that teaches it.

#ifndef CLIENT_CLIENT_COMMANDS_H_
#define CLIENT_CLIENT_COMMANDS_H_

#include <vector>

#include "server/command_line/command_line.h"

namespace flash {

// Each help begins with "flash-client COMMAND [flags]: what it does."
std::vector<Command> ClientCommands();

}  // namespace flash

#endif  // CLIENT_CLIENT_COMMANDS_H_
