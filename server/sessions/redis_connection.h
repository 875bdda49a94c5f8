// Commands to a Redis, and its replies.

#ifndef SERVER_SESSIONS_REDIS_CONNECTION_H_
#define SERVER_SESSIONS_REDIS_CONNECTION_H_

#include <hiredis/hiredis.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/mutex.h"
#include "server/sessions/redis_address.h"

namespace flash {

struct WipeAndFreeReply {
  void operator()(redisReply* reply) const;
};
using RedisReply = std::unique_ptr<redisReply, WipeAndFreeReply>;

// The string that `reply` is, or nothing if it is something else.
std::optional<std::string_view> StringOf(const redisReply* reply);

// Thread safety: one thread at a time.
class RedisConnection {
 public:
  // Connects, and says password and database. UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<RedisConnection>> Connect(
      const RedisAddress& address);

  // Waits for the reply. UNAVAILABLE if there is none within two seconds (more
  // for a large body): then nobody knows whether it was carried out, and the
  // connection is broken. Otherwise what Redis says: RESOURCE_EXHAUSTED if its
  // memory is full, UNAVAILABLE in all other cases.
  absl::StatusOr<RedisReply> Run(std::span<const std::string_view> arguments);

  bool is_broken() const { return is_broken_; }
  // Whether the other end has closed it while it was idle, or has sent what
  // nobody asked for.
  bool HasNews() const;

 private:
  struct FreeContext {
    void operator()(redisContext* context) const { redisFree(context); }
  };

  RedisConnection(redisContext* context, std::string description)
      : context_(context), description_(std::move(description)) {}

  absl::Status Send(std::span<const std::string_view> arguments);
  absl::Status NoAnswer(std::string_view why);

  const std::unique_ptr<redisContext, FreeContext> context_;
  const std::string description_;
  bool is_broken_ = false;
};

// Connections that wait for their next command.
//
// Thread safety: every function may be called from any thread.
class RedisConnections {
 public:
  explicit RedisConnections(RedisAddress address)
      : address_(std::move(address)) {}

  // RedisConnection::Run() on one that is idle, or a new one. A command is sent
  // once, whatever happens.
  absl::StatusOr<RedisReply> Run(std::span<const std::string_view> arguments);

  const RedisAddress& address() const { return address_; }

 private:
  absl::StatusOr<std::unique_ptr<RedisConnection>> Take();
  void GiveBack(std::unique_ptr<RedisConnection> connection);

  const RedisAddress address_;
  Mutex mutex_;
  std::vector<std::unique_ptr<RedisConnection>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flash

#endif  // SERVER_SESSIONS_REDIS_CONNECTION_H_
