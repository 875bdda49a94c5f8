// A closed-loop load: N sessions, each of which asks again when it was
// answered.

#ifndef CLIENT_LOAD_RUN_H_
#define CLIENT_LOAD_RUN_H_

#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "client/latency_samples.h"
#include "flash/v1/control.pb.h"
#include "flash/v1/inference.pb.h"

namespace flash {

struct LoadSettings {
  std::string server;
  int sessions = 1;
  int prompt_tokens = 128;
  std::string prompt_text;  // if not empty: instead of random ids
  uint64_t max_tokens = 128;
  float temperature = 1;
  uint64_t seed = 1;
  std::chrono::milliseconds warmup{0};    // before anything counts
  std::chrono::milliseconds duration{0};  // of what counts
  int64_t requests = 0;  // ends earlier when so many were answered; 0: never
};

// What happened after the warm-up, but where it says otherwise.
struct LoadResult {
  double seconds = 0;
  int64_t tokens = 0;         // received
  int64_t prompt_tokens = 0;  // of the requests that were accepted
  int64_t requests_begun = 0;
  int64_t requests_cut = 0;  // still running at the end, and cancelled
  std::map<std::string, int64_t> by_status;  // of those that ended
  int64_t requests_refused = 0;  // of these, turned away by a full queue
  // Of all calls, those of the warm-up included: that ended neither OK nor
  // turned away by a full queue, and were not cut off by the end.
  int64_t requests_failed = 0;
  std::string first_failure;      // what the first of them said
  LatencySamples first_token_ms;  // from the call to its first token
  LatencySamples gap_ms;          // between two tokens of a stream
  LatencySamples request_ms;      // of those that ended OK

  double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
};

// So far: for a line of progress.
struct LoadProgress {
  double seconds = 0;  // since the beginning, warm-up included
  int64_t tokens = 0;
  int64_t requests_ended = 0;
  int64_t requests_failed = 0;
};

// The request of session `session` when it asks for the `round`th time: a
// function of the settings and these numbers.
v1::GenerateRequest LoadRequest(const LoadSettings& settings,
                                const v1::ModelInfo& model, int session,
                                int64_t round);

// Whether a call that ended so was turned away by a full queue. That is an
// answer: a load may be meant to fill it.
bool IsRefusal(const grpc::Status& status);

// Whether a call that ended so says that something is wrong.
bool IsFailure(const grpc::Status& status);

// Runs the load on a thread for each session, and asks `go_on` once a second,
// on the calling one, whether to; false ends the load early.
LoadResult RunLoad(const LoadSettings& settings, const v1::ModelInfo& model,
                   const std::function<bool(const LoadProgress&)>& go_on);

}  // namespace flash

#endif  // CLIENT_LOAD_RUN_H_
