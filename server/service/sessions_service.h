// The service flash.v1.Sessions: texts that are kept between requests.

#ifndef SERVER_SERVICE_SESSIONS_SERVICE_H_
#define SERVER_SERVICE_SESSIONS_SERVICE_H_

#include <memory>

#include "server/service/call.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace flash {

// `parts` is borrowed and outlives the server. REQUIRES: parts.sessions.
std::unique_ptr<grpc::Service> MakeSessionsService(const CallParts& parts);

}  // namespace flash

#endif  // SERVER_SERVICE_SESSIONS_SERVICE_H_
