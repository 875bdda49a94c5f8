// What flash-client prints.

#ifndef CLIENT_CLIENT_OUTPUT_H_
#define CLIENT_CLIENT_OUTPUT_H_

#include <string>

#include "flash/v1/control.pb.h"
#include "flash/v1/inference.pb.h"

namespace flash {

// What is to be printed for one event of a stream, line ends included; empty
// for nothing. `seed` is the one that was accepted.
std::string EventText(const v1::GenerateEvent& event);
std::string EventJson(const v1::GenerateEvent& event, uint64_t seed);

std::string ScoreText(const v1::ScoreResult& result);
std::string ScoreJson(const v1::ScoreResult& result);

std::string InfoText(const v1::ServerInfo& server, const v1::ModelInfo& model);
std::string InfoJson(const v1::ServerInfo& server, const v1::ModelInfo& model);

// As "MAX_TOKENS".
std::string ReasonName(v1::FinishReason reason);

}  // namespace flash

#endif  // CLIENT_CLIENT_OUTPUT_H_
