#include "server/memory_plan.h"

#include "absl/strings/str_cat.h"

namespace flash {
namespace {

// On a disk, where nobody says.
constexpr int64_t kStoreBytesOnDisk = int64_t{16} << 30;

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const ServerConfig& config,
                                      int64_t usable) {
  MemoryPlan plan;
  const bool in_memory = config.session_store == "memory";
  if (!config.session_store.empty()) {
    plan.session_store = config.session_store_bytes.value_or(
        in_memory ? usable / 8 : kStoreBytesOnDisk);
    plan.session_cache = config.session_cache_bytes.value_or(usable / 16);
  }
  plan.prefix_cache = config.prefix_cache_bytes.value_or(usable / 8);
  const int64_t store = in_memory ? plan.session_store : 0;
  plan.slots = usable - store - plan.session_cache - plan.prefix_cache;
  if (plan.slots > 0) return plan;
  return absl::ResourceExhaustedError(
      absl::StrCat("sessions in memory (", store, " bytes), their cache (",
                   plan.session_cache, ") and the prefix cache (",
                   plan.prefix_cache, ") leave nothing for slots of the ",
                   usable, " bytes that are left after the weights"));
}

}  // namespace flash
