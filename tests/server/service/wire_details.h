// The error details of a status as a client decodes them.

#ifndef TESTS_SERVER_SERVICE_WIRE_DETAILS_H_
#define TESTS_SERVER_SERVICE_WIRE_DETAILS_H_

#include <grpcpp/support/status.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace flash {

struct WireDetails {
  std::string reason;
  std::string domain;
  std::map<std::string, std::string> violations;  // field: description
  std::optional<std::chrono::milliseconds> retry_delay;
  std::string resource;
};

inline WireDetails DetailsOf(const grpc::Status& status) {
  WireDetails details;
  google::rpc::Status packed;
  EXPECT_TRUE(packed.ParseFromString(status.error_details()));
  EXPECT_EQ(packed.code(), status.error_code());
  EXPECT_EQ(packed.message(), status.error_message());
  for (const auto& any : packed.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    google::rpc::ResourceInfo resource;
    if (any.UnpackTo(&info)) {
      details.reason = info.reason();
      details.domain = info.domain();
    } else if (any.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        details.violations[violation.field()] = violation.description();
      }
    } else if (any.UnpackTo(&retry)) {
      details.retry_delay =
          std::chrono::seconds(retry.retry_delay().seconds()) +
          std::chrono::milliseconds(retry.retry_delay().nanos() / 1'000'000);
    } else if (any.UnpackTo(&resource)) {
      details.resource =
          resource.resource_type() + "/" + resource.resource_name();
    } else {
      ADD_FAILURE() << "unknown detail " << any.type_url();
    }
  }
  return details;
}

}  // namespace flash

#endif  // TESTS_SERVER_SERVICE_WIRE_DETAILS_H_
