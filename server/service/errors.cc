#include "server/service/errors.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <algorithm>
#include <random>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/scheduler/slot_states.h"

namespace flash {
namespace {

constexpr char kDomain[] = "flash";
constexpr std::string_view kTypePrefix = "type.googleapis.com/";
constexpr char kReasonUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kRetryUrl[] = "type.googleapis.com/google.rpc.RetryInfo";

// Trailers may have 8 KiB in all, and the message and the details both tell the
// violations.
constexpr size_t kMaxMessageBytes = 1536;

void Attach(absl::Status& status, const google::protobuf::Message& detail) {
  status.SetPayload(
      absl::StrCat(std::string(kTypePrefix), detail.GetTypeName()),
      absl::Cord(detail.SerializeAsString()));
}

absl::Status WithReason(absl::Status status, const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_domain(kDomain);
  info.set_reason(reason);
  Attach(status, info);
  return status;
}

// For statuses of Sessions.
const char* SessionReason(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kNotFound:
      return "SESSION_NOT_FOUND";
    case absl::StatusCode::kAborted:
      return "SESSION_IN_USE";
    case absl::StatusCode::kFailedPrecondition:
      return "SESSION_MISMATCH";
    case absl::StatusCode::kDataLoss:
      return "SESSION_DAMAGED";
    case absl::StatusCode::kResourceExhausted:
      return "SESSION_STORE_FULL";
    case absl::StatusCode::kUnavailable:
      return "SESSION_STORE_DOWN";
    default:
      return nullptr;
  }
}

// `status` with a message fit for a trailer.
absl::Status Printable(const absl::Status& status) {
  const std::string message(status.message());
  return absl::Status(status.code(), Excerpt(message, kMaxMessageBytes));
}

// For statuses that come without a reason: from the engine, at the end of a
// request.
const char* DefaultReason(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return "INVALID_REQUEST";
    case absl::StatusCode::kNotFound:
      return "NOT_FOUND";
    case absl::StatusCode::kFailedPrecondition:
      return "NO_TOKENIZER";
    case absl::StatusCode::kResourceExhausted:
      return "READER_TOO_SLOW";
    case absl::StatusCode::kUnavailable:
      return absl::StartsWith(status.message(), kDeviceFailedWords)
                 ? "DEVICE_FAILED"
                 : "SHUTTING_DOWN";
    case absl::StatusCode::kDataLoss:
      return "SESSION_DAMAGED";
    case absl::StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case absl::StatusCode::kCancelled:
      return "CANCELLED";
    default:
      return absl::StartsWith(status.message(), kDeviceFailedWords)
                 ? "DEVICE_FAILED"
                 : "INTERNAL";
  }
}

std::chrono::milliseconds SpreadDelay() {
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::chrono::milliseconds(
      std::uniform_int_distribution<int>(500, 1000)(random));
}

}  // namespace

std::string Excerpt(std::string_view text, size_t max_bytes) {
  std::string excerpt;
  for (const char c : text.substr(0, max_bytes)) {
    excerpt += c >= 0x20 && c < 0x7f ? c : '?';
  }
  if (text.size() > max_bytes) excerpt += "...";
  return excerpt;
}

absl::Status InvalidRequest(const std::vector<FieldViolation>& violations,
                            size_t num_more) {
  google::rpc::BadRequest details;
  std::string message;
  const size_t count = std::min(violations.size(), kMaxViolations);
  for (size_t i = 0; i < count; ++i) {
    auto* violation = details.add_field_violations();
    violation->set_field(violations[i].field);
    violation->set_description(violations[i].description);
    absl::StrAppend(&message, i == 0 ? "" : "; ", violations[i].field, " ",
                    violations[i].description);
  }
  num_more += violations.size() - count;
  if (num_more > 0) absl::StrAppend(&message, "; and ", num_more, " more");
  auto status =
      WithReason(absl::InvalidArgumentError(Excerpt(message, kMaxMessageBytes)),
                 "INVALID_REQUEST");
  Attach(status, details);
  return status;
}

absl::Status ModelNotFound(std::string_view wanted, std::string_view served) {
  auto status =
      WithReason(absl::NotFoundError(absl::StrCat(
                     "model is \"", Excerpt(wanted, 64),
                     "\"; this server has \"", Excerpt(served, 64), "\"")),
                 "MODEL_NOT_FOUND");
  google::rpc::ResourceInfo resource;
  resource.set_resource_type("model");
  resource.set_resource_name(Excerpt(wanted, 64));
  Attach(status, resource);
  return status;
}

absl::Status RequestIdInUse(std::string_view id) {
  auto status = WithReason(absl::AlreadyExistsError(absl::StrCat(
                               "request_id is \"", Excerpt(id, 128),
                               "\"; a live request has that id")),
                           "REQUEST_ID_IN_USE");
  google::rpc::ResourceInfo resource;
  resource.set_resource_type("request");
  resource.set_resource_name(Excerpt(id, 128));
  Attach(status, resource);
  return status;
}

absl::Status NeedsTokenizer(std::string_view field) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          std::string(field),
          " needs a tokenizer; this model takes and gives token ids only")),
      "NO_TOKENIZER");
}

absl::Status QueueFull(std::string_view message) {
  auto status = WithReason(absl::ResourceExhaustedError(absl::string_view(
                               message.data(), message.size())),
                           "QUEUE_FULL");
  const auto delay = SpreadDelay();
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(delay.count() / 1000);
  retry.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>(delay.count() % 1000) * 1'000'000);
  Attach(status, retry);
  return status;
}

absl::Status AnswerTooLarge(size_t num_bytes) {
  return WithReason(absl::ResourceExhaustedError(
                        absl::StrCat("the answer has ", num_bytes,
                                     " bytes, more than a message can hold")),
                    "ANSWER_TOO_LARGE");
}

absl::Status NoTenant(std::string_view message) {
  return WithReason(
      absl::UnauthenticatedError(Excerpt(message, kMaxMessageBytes)),
      "NO_TENANT");
}

absl::Status SessionEnded(std::string_view id) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          "the text of session \"", Excerpt(id, 64),
          "\" was ended by a token or a stop string; it goes on with a prompt "
          "only")),
      "SESSION_ENDED");
}

absl::Status SessionError(const absl::Status& status, std::string_view field) {
  if (absl::IsInvalidArgument(status)) {
    return InvalidRequest(
        {{std::string(field), std::string(status.message())}});
  }
  const char* reason = SessionReason(status.code());
  return reason == nullptr ? status : WithReason(Printable(status), reason);
}

absl::Status SnapshotError(const absl::Status& status) {
  if (absl::IsNotFound(status)) {
    return WithReason(Printable(status), "REQUEST_NOT_FOUND");
  }
  if (absl::IsFailedPrecondition(status)) {
    return WithReason(Printable(status), "NOTHING_TO_SAVE");
  }
  if (absl::IsResourceExhausted(status)) {
    return QueueFull(std::string(status.message()));
  }
  return status;
}

absl::Status SubmitError(const absl::Status& status) {
  const std::string message(status.message());
  if (absl::IsResourceExhausted(status)) return QueueFull(message);
  if (absl::IsInvalidArgument(status)) {
    return InvalidRequest({{"request", message}});
  }
  return status;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  absl::Status complete = status;
  if (!complete.GetPayload(kReasonUrl).has_value()) {
    complete = WithReason(status, DefaultReason(status));
  }
  google::rpc::Status details;
  details.set_code(static_cast<int>(complete.code()));
  details.set_message(std::string(complete.message()));
  complete.ForEachPayload(
      [&details](absl::string_view url, const absl::Cord& value) {
        auto* any = details.add_details();
        any->set_type_url(std::string(url));
        any->set_value(std::string(value));
      });
  return grpc::Status(static_cast<grpc::StatusCode>(complete.code()),
                      details.message(), details.SerializeAsString());
}

std::optional<std::chrono::milliseconds> RetryDelay(
    const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryUrl);
  google::rpc::RetryInfo retry;
  if (!payload.has_value() || !retry.ParseFromString(std::string(*payload))) {
    return std::nullopt;
  }
  return std::chrono::seconds(retry.retry_delay().seconds()) +
         std::chrono::milliseconds(retry.retry_delay().nanos() / 1'000'000);
}

void AddRetryTrailer(const absl::Status& status,
                     grpc::CallbackServerContext& context) {
  if (const auto delay = RetryDelay(status)) {
    context.AddTrailingMetadata("grpc-retry-pushback-ms",
                                absl::StrCat(delay->count()));
  }
}

}  // namespace flash
