#include "server/sessions/redis_address.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace flash {
namespace {

constexpr std::string_view kScheme = "redis://";

absl::Status Refused(const char* what) {
  return absl::InvalidArgumentError(
      absl::StrCat("of redis://[:PASSWORD@]HOST[:PORT][/DATABASE], ", what));
}

bool ParseNumber(std::string_view text, int max, int* number) {
  return absl::SimpleAtoi(std::string(text), number) && *number >= 0 &&
         *number <= max;
}

}  // namespace

std::string RedisAddress::Describe() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return absl::StrCat("redis://", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "",
                      ":", port, "/", database);
}

absl::StatusOr<RedisAddress> ParseRedisUrl(std::string_view url) {
  if (!url.starts_with(kScheme)) return Refused("redis:// is missing");
  url.remove_prefix(kScheme.size());
  RedisAddress address;
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) {
    if (url[0] != ':') return Refused("the password does not follow a ':'");
    address.password = url.substr(1, at - 1);
    if (address.password.empty()) return Refused("the password is empty");
    url.remove_prefix(at + 1);
  }
  if (const size_t slash = url.find('/'); slash != std::string_view::npos) {
    const std::string_view database = url.substr(slash + 1);
    if (!ParseNumber(database, 1'000'000, &address.database)) {
      return Refused("the database is no number");
    }
    url = url.substr(0, slash);
  }
  if (url.starts_with('[')) {
    const size_t end = url.find(']');
    if (end == std::string_view::npos) return Refused("a ']' is missing");
    address.host = url.substr(1, end - 1);
    url.remove_prefix(end + 1);
  } else {
    address.host = url.substr(0, url.find(':'));
    url.remove_prefix(address.host.size());
  }
  if (address.host.empty()) return Refused("the host is missing");
  if (!url.empty() &&
      (url[0] != ':' || !ParseNumber(url.substr(1), 65535, &address.port) ||
       address.port == 0)) {
    return Refused("the port is no number from 1 to 65535");
  }
  return address;
}

}  // namespace flash
