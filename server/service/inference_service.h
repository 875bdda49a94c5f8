// The service flash.v1.Inference: each call becomes a request to the engine, or
// to the tokenizer.

#ifndef SERVER_SERVICE_INFERENCE_SERVICE_H_
#define SERVER_SERVICE_INFERENCE_SERVICE_H_

#include <memory>

#include "server/service/call.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace flash {

// `parts` outlives the service, and everything in it outlives the server.
std::unique_ptr<grpc::Service> MakeInferenceService(const CallParts& parts);

}  // namespace flash

#endif  // SERVER_SERVICE_INFERENCE_SERVICE_H_
