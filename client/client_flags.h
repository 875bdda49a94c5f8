// The flags of flash-client, and the requests that they ask for.

#ifndef CLIENT_CLIENT_FLAGS_H_
#define CLIENT_CLIENT_FLAGS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "flash/v1/inference.pb.h"
#include "server/command_line/command_line.h"

namespace flash {

enum class OutputFormat { kText, kJson };

struct ClientConfig {
  std::string server;
  OutputFormat output = OutputFormat::kText;
  std::optional<std::chrono::milliseconds> timeout;
  std::chrono::milliseconds wait{0};  // for the server to take requests
};

Program ClientProgram();

// What the flags say, once they are set. INVALID_ARGUMENT, with one sentence,
// if they make no sense, and FAILED_PRECONDITION if a file cannot be read.
absl::StatusOr<ClientConfig> ClientConfigFromFlags();
absl::StatusOr<v1::GenerateRequest> GenerateRequestFromFlags();
absl::StatusOr<v1::ScoreRequest> ScoreRequestFromFlags();

// The ids of "1,2,3"; `flag` is for the error.
absl::StatusOr<std::vector<uint32_t>> ParseIds(const std::string& flag,
                                               const std::string& text);

}  // namespace flash

#endif  // CLIENT_CLIENT_FLAGS_H_
