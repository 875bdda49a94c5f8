// What a failed call says, for people.

#ifndef CLIENT_ERROR_TEXT_H_
#define CLIENT_ERROR_TEXT_H_

#include <grpcpp/support/status.h>

#include <string>

namespace flash {

// As "INVALID_ARGUMENT": the name of a status code.
std::string CodeName(grpc::StatusCode code);

// The code's name, the server's reason and message, violations that the message
// does not tell, and when to try again.
std::string ErrorText(const grpc::Status& status);

}  // namespace flash

#endif  // CLIENT_ERROR_TEXT_H_
