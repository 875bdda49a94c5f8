// What a failed call says, for people.

#ifndef CLIENT_ERROR_TEXT_H_
#define CLIENT_ERROR_TEXT_H_

#include <grpcpp/support/status.h>

#include <chrono>
#include <optional>
#include <string>

namespace flash {

// As "INVALID_ARGUMENT": the name of a status code.
std::string CodeName(grpc::StatusCode code);

// ErrorInfo.reason, as "QUEUE_FULL"; empty if there is none, as for errors that
// are gRPC's own.
std::string ErrorReason(const grpc::Status& status);

// When the server says that it may be tried again; none if it does not.
std::optional<std::chrono::milliseconds> RetryDelay(const grpc::Status& status);

// The code's name, the server's reason and message, violations that the message
// does not tell, and when to try again.
std::string ErrorText(const grpc::Status& status);

}  // namespace flash

#endif  // CLIENT_ERROR_TEXT_H_
