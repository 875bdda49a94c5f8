// The groups of a GenerateRequest but the prompt: how to choose, when to stop,
// what to tell, and what was generated before.

#ifndef SERVER_SERVICE_REQUEST_FIELDS_H_
#define SERVER_SERVICE_REQUEST_FIELDS_H_

#include <cstdint>
#include <vector>

#include "flash/v1/inference.pb.h"
#include "server/scheduler/request.h"
#include "server/service/facts.h"
#include "server/service/field_checks.h"
#include "server/service/limits.h"

namespace flash {

// StoppingOptions::max_tokens where the client did not set it: what it becomes
// depends on the prompt's length.
inline constexpr int64_t kUnsetMaxTokens = -1;

// REQUIRES: each is less than 2^31, as every id of a vocabulary is.
std::vector<int32_t> ToIds(
    const google::protobuf::RepeatedField<uint32_t>& ids);

// All references must outlive it.
class RequestFields {
 public:
  RequestFields(const ServiceLimits& limits, const ModelFacts& model,
                FieldChecks& checks)
      : limits_(limits), model_(model), checks_(checks) {}

  // Copies the groups of `wire` into `request`, and tells `checks` what is
  // wrong with them. `request` is of no use unless all is well.
  void Read(const v1::GenerateRequest& wire, Request& request);

 private:
  void CheckSamplingNumbers(const v1::Sampling& wire);
  void CheckSamplingCounts(const v1::Sampling& wire);
  void CheckLogitBias(const v1::Sampling& wire);
  void ReadSampling(const v1::Sampling& wire, Request& request);

  void CheckStopStrings(const v1::Stopping& wire);
  void CheckStopping(const v1::Stopping& wire);
  void ReadStopping(const v1::Stopping& wire, StoppingOptions& stopping);

  void ReadResponse(const v1::ResponseOptions& wire, ResponseOptions& response);
  void ReadPrior(const v1::GenerateRequest& wire, Request& request);

  // While an output is shorter than min_tokens something else than its ends
  // must be allowed.
  void CheckSomethingCanBeChosen(const Request& request);

  const ServiceLimits& limits_;
  const ModelFacts& model_;
  FieldChecks& checks_;
};

}  // namespace flash

#endif  // SERVER_SERVICE_REQUEST_FIELDS_H_
