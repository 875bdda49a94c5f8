#include "server/sessions/blob_store.h"

#include <utility>

#include "server/sessions/directory_store.h"
#include "server/sessions/memory_store.h"
#include "server/sessions/redis_address.h"
#include "server/sessions/redis_store.h"

namespace flash {

absl::StatusOr<std::unique_ptr<BlobStore>> OpenBlobStore(
    std::string_view spec, int64_t max_bytes,
    std::function<void(const std::string&)> on_damage) {
  if (spec == "memory") return std::make_unique<MemoryStore>(max_bytes);
  if (constexpr std::string_view kDirectory = "dir:";
      spec.starts_with(kDirectory) && spec != kDirectory) {
    return DirectoryStore::Open(std::string(spec.substr(kDirectory.size())),
                                max_bytes, std::move(on_damage));
  }
  if (spec.starts_with("redis:")) {
    absl::StatusOr<RedisAddress> address = ParseRedisUrl(spec);
    if (!address.ok()) return address.status();
    return RedisStore::Open(*std::move(address));
  }
  // Not quoted: it may hold a password.
  return absl::InvalidArgumentError(
      "a store is \"memory\", \"dir:PATH\" or "
      "\"redis://[:PASSWORD@]HOST[:PORT][/DATABASE]\"");
}

}  // namespace flash
