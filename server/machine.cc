#include "server/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "absl/strings/numbers.h"

namespace flash {
namespace {

constexpr int kMaxProcessors = 1024;  // the most that a thread pool takes

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The numbers at the beginning of a file; "max" and what is no number ends
// them.
std::optional<int64_t> Number(std::istream& in) {
  std::string word;
  int64_t value = 0;
  if (!(in >> word) || !absl::SimpleAtoi(word, &value)) return std::nullopt;
  return value;
}

std::optional<int64_t> FirstNumber(const std::string& path) {
  std::ifstream file(path);
  return Number(file);
}

// The bytes of a line "name:   123 kB" or "name 123".
std::optional<int64_t> Field(const std::string& path, const std::string& name,
                             int64_t unit) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    if (!(words >> first) || first != name) continue;
    const auto value = Number(words);
    if (value.has_value()) return *value * unit;
  }
  return std::nullopt;
}

// Processors of the cgroup's quota, version 2 or 1.
std::optional<int64_t> QuotaProcessors(const std::string& root) {
  std::ifstream file(root + "/sys/fs/cgroup/cpu.max");
  std::optional<int64_t> quota = Number(file);
  std::optional<int64_t> period = Number(file);
  if (!quota.has_value()) {
    const std::string v1 = root + "/sys/fs/cgroup/cpu/cpu.cfs_";
    quota = FirstNumber(v1 + "quota_us");
    period = FirstNumber(v1 + "period_us");
  }
  if (quota.value_or(0) <= 0 || period.value_or(0) <= 0) return std::nullopt;
  return (*quota + *period - 1) / *period;
}

// What the cgroup's limit leaves. Pages of files that can be dropped do not
// count as used.
int64_t CgroupLeft(const std::string& root) {
  const std::string v2 = root + "/sys/fs/cgroup/memory.";
  const std::string v1 = root + "/sys/fs/cgroup/memory/memory.";
  auto limit = FirstNumber(v2 + "max");
  auto used = FirstNumber(v2 + "current");
  auto cached = Field(v2 + "stat", "inactive_file", 1);
  if (!limit.has_value()) {
    limit = FirstNumber(v1 + "limit_in_bytes");
    used = FirstNumber(v1 + "usage_in_bytes");
    cached = Field(v1 + "stat", "total_inactive_file", 1);
  }
  if (!limit.has_value()) return kNoLimit;
  return *limit - (used.value_or(0) - cached.value_or(0));
}

}  // namespace

int UsableProcessorsBelow(const std::string& root, int affinity) {
  const int64_t quota = QuotaProcessors(root).value_or(affinity);
  return static_cast<int>(std::clamp<int64_t>(quota, 1, affinity));
}

int64_t UsableMemoryBytesBelow(const std::string& root) {
  const int64_t available =
      Field(root + "/proc/meminfo", "MemAvailable:", 1024).value_or(0);
  return std::max<int64_t>(std::min(available, CgroupLeft(root)), 0);
}

int UsableProcessors() {
  cpu_set_t set;
  const int affinity = sched_getaffinity(0, sizeof(set), &set) == 0
                           ? CPU_COUNT(&set)
                           : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return UsableProcessorsBelow("", std::clamp(affinity, 1, kMaxProcessors));
}

int64_t UsableMemoryBytes() { return UsableMemoryBytesBelow(""); }

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace flash
