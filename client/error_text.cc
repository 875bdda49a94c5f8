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

std::string ErrorReason(const grpc::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  for (const auto& any : details.details()) {
    google::rpc::ErrorInfo info;
    if (any.UnpackTo(&info)) return info.reason();
  }
  return "";
}

std::string ErrorText(const grpc::Status& status) {
  std::string more;
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  for (const auto& any : details.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        if (absl::StrContains(status.error_message(), violation.description()))
          continue;
        absl::StrAppend(&more, "; ", violation.field(), " ",
                        violation.description());
      }
    } else if (any.UnpackTo(&retry)) {
      absl::StrAppend(&more, "; try again in ",
                      retry.retry_delay().seconds() * 1000 +
                          retry.retry_delay().nanos() / 1'000'000,
                      " ms");
    }
  }
  const std::string info = ErrorReason(status);
  const std::string reason = info.empty() ? "" : absl::StrCat(" (", info, ")");
  const std::string name = CodeName(status.error_code());
  const std::string message =
      status.error_message() == name ? "" : ": " + status.error_message();
  return absl::StrCat(name, reason, message, more);
}

}  // namespace flash
