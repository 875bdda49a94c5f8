// How the memory that is left after the weights is divided between slots,
// sessions and the prefix cache.

#ifndef SERVER_MEMORY_PLAN_H_
#define SERVER_MEMORY_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/server_config.h"

namespace flash {

// In bytes.
struct MemoryPlan {
  int64_t session_store = 0;  // most of it on disk, if that is where it is
  int64_t session_cache = 0;
  int64_t prefix_cache = 0;
  int64_t slots = 0;  // what is left
};

// RESOURCE_EXHAUSTED if what `config` asks for is more than the `usable` bytes
// of memory.
absl::StatusOr<MemoryPlan> PlanMemory(const ServerConfig& config,
                                      int64_t usable);

}  // namespace flash

#endif  // SERVER_MEMORY_PLAN_H_
