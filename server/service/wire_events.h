// From what the engine tells to what the wire says. Pure.

#ifndef SERVER_SERVICE_WIRE_EVENTS_H_
#define SERVER_SERVICE_WIRE_EVENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flash/v1/inference.pb.h"
#include "server/scheduler/request.h"
#include "server/sessions/sessions.h"

namespace flash {

// What the engine's Accepted does not repeat of the request.
struct RequestFacts {
  std::string request_id;
  std::string model;
  int64_t max_tokens = 0;
  int64_t min_tokens = 0;
  int32_t num_outputs = 1;
  int64_t session_epoch = 0;  // 0: none is claimed
};

v1::Accepted ToWire(const Accepted& accepted, const RequestFacts& facts);
v1::TokenInfo ToWire(TokenInfo token);
v1::TokenOutput ToWire(TokenOutput token);
v1::Finished ToWire(const Finished& finished,
                    const std::optional<SessionInfo>& session);
v1::Session ToWire(const SessionInfo& session);
v1::Usage ToWire(const Usage& usage);
v1::Timing ToWire(const Timings& timings);

// A long prompt comes in parts, each of a size that any client takes. At least
// one part.
std::vector<v1::PromptOutput> ToWireParts(PromptOutput prompt);

v1::FinishReason ToWire(FinishReason reason);

}  // namespace flash

#endif  // SERVER_SERVICE_WIRE_EVENTS_H_
