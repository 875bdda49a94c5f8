// How the commands of flash-client say what they have to say.

#ifndef CLIENT_CLIENT_PROGRAM_H_
#define CLIENT_CLIENT_PROGRAM_H_

#include <grpcpp/support/status.h>

#include <cstdio>
#include <string>

#include "client/complain.h"
#include "client/error_text.h"
#include "client/resuming_client.h"
#include "server/command_line/standard_output.h"

namespace flash {

inline constexpr char kClientName[] = "flash-client";

// Both return the program's exit code.
inline int Fail(const grpc::Status& status) {
  return Complain(kClientName, ErrorText(status), kFailed);
}
inline int Print(const std::string& text) {
  const absl::Status printed = WriteOut(text);
  return printed.ok() ? 0 : Complain(kClientName, printed);
}

// Tells, on the standard error, that a stream went on.
inline void SayWhereItGoesOn(const Resumption& resumption) {
  std::fprintf(
      stderr, "%s: resumed at token %llu on %s after: %s\n", kClientName,
      static_cast<unsigned long long>(resumption.num_tokens),
      resumption.address.c_str(), ErrorText(resumption.reason).c_str());
}

}  // namespace flash

#endif  // CLIENT_CLIENT_PROGRAM_H_
