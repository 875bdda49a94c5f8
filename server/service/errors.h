// From our statuses to those on the wire, with the details that
// inference.proto promises.
//
// Details travel inside an absl::Status, as its payloads: whoever finds an
// error attaches what is known there, and ToGrpcStatus() packs it.

#ifndef SERVER_SERVICE_ERRORS_H_
#define SERVER_SERVICE_ERRORS_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace grpc {
class CallbackServerContext;
class Status;
}  // namespace grpc

namespace flash {

// One thing that is wrong with a request.
struct FieldViolation {
  std::string field;        // its path, as "sampling.top_p"
  std::string description;  // the value and the limit: "is 2; the most is 1"
};

// Violations that an answer tells: gRPC bounds what fits into a trailer.
inline constexpr size_t kMaxViolations = 8;

// INVALID_ARGUMENT with the first kMaxViolations of these, and how many more
// there are, `num_more` beside these included.
// REQUIRES: at least one.
absl::Status InvalidRequest(const std::vector<FieldViolation>& violations,
                            size_t num_more = 0);

// NOT_FOUND: a client asked for model `wanted`, and `served` is here.
absl::Status ModelNotFound(std::string_view wanted, std::string_view served);

// ALREADY_EXISTS: a live request has this id.
absl::Status RequestIdInUse(std::string_view id);

// FAILED_PRECONDITION: `field` needs a tokenizer and the model has none.
absl::Status NeedsTokenizer(std::string_view field);

// RESOURCE_EXHAUSTED: `message` says what is full. Tells the client to come
// back in half a second to a second: spread, so that not all come at once.
absl::Status QueueFull(std::string_view message);

// RESOURCE_EXHAUSTED: no message can hold an answer of `num_bytes`.
absl::Status AnswerTooLarge(size_t num_bytes);

// UNAUTHENTICATED: it cannot be told who calls.
absl::Status NoTenant(std::string_view message);

// FAILED_PRECONDITION: the text of session `id` has ended, and the request has
// no prompt.
absl::Status SessionEnded(std::string_view id);

// What to tell the client for an error of Sessions, which has no details yet.
// `field`: of the request, that Sessions may find invalid.
absl::Status SessionError(const absl::Status& status,
                          std::string_view field = "session");

// Likewise for one of Engine::TakeSnapshot().
absl::Status SnapshotError(const absl::Status& status);

// What to tell the client for an error of Engine::Submit(), which has no
// details yet.
absl::Status SubmitError(const absl::Status& status);

// `status` with its details and, always, ErrorInfo. OK stays OK.
grpc::Status ToGrpcStatus(const absl::Status& status);

// How long a client should wait, if `status` says so.
std::optional<std::chrono::milliseconds> RetryDelay(const absl::Status& status);

// Sets the trailer `grpc-retry-pushback-ms` if `status` has a retry delay. To
// be called before the call finishes.
void AddRetryTrailer(const absl::Status& status,
                     grpc::CallbackServerContext& context);

// `text` fit for a message: printable ASCII, at most `max_bytes` and then
// "...".
std::string Excerpt(std::string_view text, size_t max_bytes);

}  // namespace flash

#endif  // SERVER_SERVICE_ERRORS_H_
