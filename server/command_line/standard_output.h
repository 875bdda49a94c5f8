// What a program prints for others to read.

#ifndef SERVER_COMMAND_LINE_STANDARD_OUTPUT_H_
#define SERVER_COMMAND_LINE_STANDARD_OUTPUT_H_

#include <cstdio>
#include <string_view>

#include "absl/status/status.h"

namespace flash {

// Writes `text` at once, so that a pipe sees it as it comes. UNAVAILABLE, with
// one sentence, if it does not all get there.
//
// A reader that has left is an error only where SIGPIPE is ignored; elsewhere
// it ends the program.
absl::Status WriteOut(std::string_view text, std::FILE* out = stdout);

}  // namespace flash

#endif  // SERVER_COMMAND_LINE_STANDARD_OUTPUT_H_
