// What values of flags both programs take.

#ifndef CLIENT_FLAG_VALUES_H_
#define CLIENT_FLAG_VALUES_H_

#include <chrono>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace flash {

// Each gives INVALID_ARGUMENT, with one sentence that names `flag`, for a value
// that is none of its kind.

// Up to a day, which every clock can add to now.
absl::StatusOr<std::chrono::milliseconds> MillisecondsOf(
    const std::string& flag, absl::Duration value);

// HOST:PORT, or another of gRPC's names that ends in a port, or unix:PATH.
// Without a port gRPC would take 443, and tell of a connection there.
absl::Status CheckServer(const std::string& server);

// protobuf sends no string that is not UTF-8, and prints why in its own words.
absl::Status CheckUtf8(const std::string& flag, std::string_view value);

// The bytes that `text` begins with that are whole UTF-8 characters: all of
// them, if it is valid.
size_t ValidUtf8Prefix(std::string_view text);

}  // namespace flash

#endif  // CLIENT_FLAG_VALUES_H_
