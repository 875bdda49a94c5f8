// What the server writes on stderr: sentences for people while it starts and
// stops, and one line of JSON for each call that has ended.

#ifndef SERVER_LOG_H_
#define SERVER_LOG_H_

#include <string>
#include <string_view>

#include "server/service/call.h"

namespace flash {

// Writes "flash-server: " and `sentence`. Any thread.
void Log(std::string_view sentence);

// Writes the report as one line of JSON. Any thread.
void LogCall(const CallReport& report);

// That line, as of `unix_seconds`.
std::string CallLine(const CallReport& report, double unix_seconds);

}  // namespace flash

#endif  // SERVER_LOG_H_
