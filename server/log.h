// What the server writes on stderr: sentences for people while it starts and
// stops, and one line of JSON for each call that ran a request and has ended.

#ifndef SERVER_LOG_H_
#define SERVER_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/service/call.h"

namespace flash {

// Writes "flash-server: " and `sentence`. Returns true when they are written,
// and false after a second if nobody reads what is written. Any thread.
bool Log(std::string_view sentence);

// Writes the report as one line of JSON, soon: it never waits, and a line for
// which there is no room is dropped and counted. Any thread. A call with a text
// longer than `trained_length`, what the model was trained on, has a warning in
// it.
void LogCall(const CallReport& report, std::optional<int64_t> trained_length);

// That line, as of `unix_seconds`.
std::string CallLine(const CallReport& report,
                     std::optional<int64_t> trained_length,
                     double unix_seconds);

}  // namespace flash

#endif  // SERVER_LOG_H_
