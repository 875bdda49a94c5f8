// The flags of flash-loadtest.

#ifndef CLIENT_LOADTEST_FLAGS_H_
#define CLIENT_LOADTEST_FLAGS_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "client/load_run.h"
#include "server/command_line/command_line.h"

namespace flash {

struct LoadtestConfig {
  LoadSettings load;
  double max_refused = 0;   // the part of the requests, by a full queue
  std::string output_json;  // empty: none
  std::chrono::milliseconds wait{0};
};

Program LoadtestProgram();

// What the flags say, once they are set. INVALID_ARGUMENT, with one sentence,
// if they make no sense, and FAILED_PRECONDITION if a file cannot be read.
absl::StatusOr<LoadtestConfig> LoadtestConfigFromFlags();

}  // namespace flash

#endif  // CLIENT_LOADTEST_FLAGS_H_
