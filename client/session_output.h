// What flash-client prints of sessions.

#ifndef CLIENT_SESSION_OUTPUT_H_
#define CLIENT_SESSION_OUTPUT_H_

#include <string>
#include <vector>

#include "flash/v1/sessions.pb.h"

namespace flash {

// A table with a line for each, times in the local time zone. Line ends
// included.
std::string SessionsText(const std::vector<v1::Session>& sessions);

// One object, one line.
std::string SessionJson(const v1::Session& session);

}  // namespace flash

#endif  // CLIENT_SESSION_OUTPUT_H_
