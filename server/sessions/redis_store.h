// Blobs in a Redis, for servers on several machines.

#ifndef SERVER_SESSIONS_REDIS_STORE_H_
#define SERVER_SESSIONS_REDIS_STORE_H_

#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/sessions/blob_store.h"
#include "server/sessions/redis_connection.h"

namespace flash {

// A blob is a hash under the key "flash:NAME", with the fields v (version),
// h (head), n (bytes of the body) and b (body); Redis deletes it when it
// expires. A change is one script, which Redis runs as a whole.
//
// What Redis forgets by itself is lost: it should be configured not to evict
// (maxmemory-policy noeviction) and to write to its disk. A body has at most
// 512 MiB, which is Redis's limit.
//
// An outage makes calls fail, each after seconds at most; afterwards they work
// again. A change that failed with UNAVAILABLE may have been made.
class RedisStore final : public BlobStore {
 public:
  // UNAVAILABLE if there is no answer.
  static absl::StatusOr<std::unique_ptr<RedisStore>> Open(RedisAddress address);

  std::string Describe() const override {
    return connections_.address().Describe();
  }
  absl::StatusOr<Found> Get(std::string_view name) override;
  absl::StatusOr<Head> GetHead(std::string_view name) override;
  absl::StatusOr<int64_t> Put(std::string_view name, const Blob& blob,
                              std::optional<int64_t> expected,
                              absl::Time expires) override;
  absl::StatusOr<int64_t> PutHead(std::string_view name, std::string_view head,
                                  int64_t expected,
                                  absl::Time expires) override;
  absl::Status Delete(std::string_view name,
                      std::optional<int64_t> expected) override;
  absl::StatusOr<Page> List(std::string_view folder, std::string_view from,
                            int limit) override;
  // Redis does it.
  absl::Status Sweep() override { return absl::OkStatus(); }

 private:
  explicit RedisStore(RedisAddress address)
      : connections_(std::move(address)) {}

  // These fields of a blob. NOT_FOUND; DATA_LOSS if it is something else.
  absl::StatusOr<RedisReply> Read(
      std::string_view name, std::initializer_list<std::string_view> fields);
  // Runs a script that changes a blob (redis_store.cc). Returns the new
  // version.
  absl::StatusOr<int64_t> Change(
      const char* script, std::string_view name,
      std::optional<int64_t> expected, absl::Time expires,
      std::initializer_list<std::string_view> arguments);
  absl::Status AppendHeads(const std::set<std::string>& keys,
                           std::vector<Entry>* entries);

  RedisConnections connections_;
};

}  // namespace flash

#endif  // SERVER_SESSIONS_REDIS_STORE_H_
