// Where a Redis is, as a URL says it.

#ifndef SERVER_SESSIONS_REDIS_ADDRESS_H_
#define SERVER_SESSIONS_REDIS_ADDRESS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace flash {

struct RedisAddress {
  std::string host;
  int port = 6379;
  int database = 0;
  std::string password;  // empty: none; in no message

  // As the URL, but without the password.
  std::string Describe() const;
};

// "redis://[:PASSWORD@]HOST[:PORT][/DATABASE]". The password ends at the last
// '@' and is taken as it is; an IPv6 address stands in brackets.
// INVALID_ARGUMENT, with no part of the URL in the message.
absl::StatusOr<RedisAddress> ParseRedisUrl(std::string_view url);

}  // namespace flash

#endif  // SERVER_SESSIONS_REDIS_ADDRESS_H_
