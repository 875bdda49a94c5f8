// The service flash.v1.Control: what is served, and how it is doing.

#ifndef SERVER_SERVICE_CONTROL_SERVICE_H_
#define SERVER_SERVICE_CONTROL_SERVICE_H_

#include <memory>

#include "server/scheduler/engine.h"
#include "server/service/facts.h"
#include "server/service/request_parser.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace flash {

// `parser` and `engine` are borrowed and outlive the server.
std::unique_ptr<grpc::Service> MakeControlService(const ServerFacts& server,
                                                  const RequestParser& parser,
                                                  const Engine& engine);

}  // namespace flash

#endif  // SERVER_SERVICE_CONTROL_SERVICE_H_
