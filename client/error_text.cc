#include "client/error_text.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace flash {

std::string CodeName(grpc::StatusCode code) {
  // The two libraries' codes are the same numbers.
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

namespace {

// The first detail of `status` that is a Detail.
template <typename Detail>
std::optional<Detail> FindDetail(const grpc::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  Detail detail;
  for (const auto& any : details.details()) {
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

}  // namespace

std::string ErrorReason(const grpc::Status& status) {
  const auto info = FindDetail<google::rpc::ErrorInfo>(status);
  return info.has_value() ? info->reason() : "";
}

std::optional<std::chrono::milliseconds> RetryDelay(
    const grpc::Status& status) {
  const auto retry = FindDetail<google::rpc::RetryInfo>(status);
  if (!retry.has_value()) return std::nullopt;
  return std::chrono::milliseconds(retry->retry_delay().seconds() * 1000 +
                                   retry->retry_delay().nanos() / 1'000'000);
}

std::string ErrorText(const grpc::Status& status) {
  std::string more;
  if (const auto bad = FindDetail<google::rpc::BadRequest>(status)) {
    for (const auto& violation : bad->field_violations()) {
      if (absl::StrContains(status.error_message(), violation.description()))
        continue;
      absl::StrAppend(&more, "; ", violation.field(), " ",
                      violation.description());
    }
  }
  if (const auto delay = RetryDelay(status)) {
    absl::StrAppend(&more, "; try again in ", delay->count(), " ms");
  }
  const std::string info = ErrorReason(status);
  const std::string reason = info.empty() ? "" : absl::StrCat(" (", info, ")");
  const std::string name = CodeName(status.error_code());
  const std::string message =
      status.error_message() == name ? "" : ": " + status.error_message();
  return absl::StrCat(name, reason, message, more);
}

}  // namespace flash
