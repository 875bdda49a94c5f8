// The flags of flash-client, and the requests that they ask for.

#ifndef CLIENT_CLIENT_FLAGS_H_
#define CLIENT_CLIENT_FLAGS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/chat.h"
#include "client/resuming_client.h"
#include "flash/v1/inference.pb.h"
#include "flash/v1/sessions.pb.h"
#include "server/command_line/command_line.h"

namespace flash {

enum class OutputFormat { kText, kJson };

struct ClientConfig {
  std::vector<std::string> servers;  // at least one; replicas of each other
  OutputFormat output = OutputFormat::kText;
  std::optional<std::chrono::milliseconds> timeout;
  std::chrono::milliseconds wait{0};  // for the first to take requests
  ResumeOptions resume;
};

Program ClientProgram();

// What the flags say, once they are set. INVALID_ARGUMENT, with one sentence,
// if they make no sense, and FAILED_PRECONDITION if a file cannot be read.
absl::StatusOr<ClientConfig> ClientConfigFromFlags();
absl::StatusOr<v1::GenerateRequest> GenerateRequestFromFlags();
absl::StatusOr<v1::ScoreRequest> ScoreRequestFromFlags();
absl::StatusOr<ChatSettings> ChatSettingsFromFlags();

// Likewise, for the commands about sessions: --session and --file, which must
// be set, and what else a call is made of.
absl::StatusOr<std::string> SessionFromFlags();
absl::StatusOr<std::string> FileFromFlags();
absl::StatusOr<v1::SaveSessionRequest> SaveSessionRequestFromFlags();
absl::StatusOr<v1::ForkSessionRequest> ForkSessionRequestFromFlags();
absl::StatusOr<v1::PinSessionRequest> PinSessionRequestFromFlags();

// The ids of "1,2,3"; `flag` is for the error.
absl::StatusOr<std::vector<uint32_t>> ParseIds(const std::string& flag,
                                               const std::string& text);

}  // namespace flash

#endif  // CLIENT_CLIENT_FLAGS_H_
