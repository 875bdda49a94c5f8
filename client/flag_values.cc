#include "client/flag_values.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace flash {
namespace {

// The length of the character that `text` begins with; 0 if it begins with
// none. The limits keep out overlong forms, surrogates and what is beyond
// U+10FFFF.
// REQUIRES: `text` is not empty.
size_t CharacterLength(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

absl::StatusOr<std::chrono::milliseconds> MillisecondsOf(
    const std::string& flag, absl::Duration value) {
  if (value < absl::ZeroDuration() || value > absl::Hours(24)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " is ", absl::FormatDuration(value),
                     "; it must be from 0 to 24h"));
  }
  return absl::ToChronoMilliseconds(value);
}

absl::Status CheckServer(const std::string& server) {
  const size_t colon = server.rfind(':');
  int port = 0;
  // "::1" is an address of IPv6 that lacks brackets and a port.
  const bool is_bare =
      absl::StrContains(server, "::") && !absl::StrContains(server, "[");
  if (absl::StartsWith(server, "unix:") ||
      (!is_bare && colon != std::string::npos && colon > 0 &&
       absl::SimpleAtoi(server.substr(colon + 1), &port) && port >= 1 &&
       port <= 65535)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--server is ",
                   server.empty() ? "empty" : absl::StrCat("\"", server, "\""),
                   "; it must be HOST:PORT, as in 127.0.0.1:8500"));
}

absl::Status CheckUtf8(const std::string& flag, std::string_view value) {
  const size_t valid = ValidUtf8Prefix(value);
  if (valid == value.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " is not valid UTF-8 from its byte ", valid,
                   " on, counted from 0"));
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t valid = 0;
  while (valid < text.size()) {
    const size_t length = CharacterLength(text.substr(valid));
    if (length == 0) break;
    valid += length;
  }
  return valid;
}

}  // namespace flash
