// How the programs for people end when they did not do what was asked.

#ifndef CLIENT_COMPLAIN_H_
#define CLIENT_COMPLAIN_H_

#include <cstdio>
#include <string>

#include "absl/status/status.h"

namespace flash {

inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;

// Prints what is wrong, one line to the standard error; returns `exit_code`,
// for main() to return.
inline int Complain(const char* program, const std::string& sentence,
                    int exit_code) {
  std::fprintf(stderr, "%s: %s\n", program, sentence.c_str());
  return exit_code;
}

// INVALID_ARGUMENT is wrong usage; everything else failed.
inline int Complain(const char* program, const absl::Status& status) {
  return Complain(program, std::string(status.message()),
                  absl::IsInvalidArgument(status) ? kWrongUsage : kFailed);
}

}  // namespace flash

#endif  // CLIENT_COMPLAIN_H_
