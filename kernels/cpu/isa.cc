#include "kernels/cpu/isa.h"

#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace flash::cpu {

// Each is defined by kernel_table.cc, compiled for that set.
namespace avx512bf16 {
extern const KernelTable kKernels;
}
namespace avx512 {
extern const KernelTable kKernels;
}
namespace avx2 {
extern const KernelTable kKernels;
}
namespace portable {
extern const KernelTable kKernels;
}

namespace {

bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
}
// Every processor with the bfloat16 instructions has those for int8 too.
bool HasAvx512Bf16() {
  return HasAvx512() && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vnni");
}
bool HasPortable() { return true; }

struct Set {
  const KernelTable* kernels;
  bool (*is_supported)();
};

// The fastest first.
constexpr Set kSets[] = {
    {&avx512bf16::kKernels, HasAvx512Bf16},
    {&avx512::kKernels, HasAvx512},
    {&avx2::kKernels, HasAvx2},
    {&portable::kKernels, HasPortable},
};

}  // namespace

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names;
  for (const Set& set : kSets) {
    if (set.is_supported()) names.push_back(set.kernels->name);
  }
  return names;
}

absl::StatusOr<const KernelTable*> FindKernels(std::string_view name) {
  std::vector<std::string> known;
  for (const Set& set : kSets) {
    known.push_back(set.kernels->name);
    if (name == "auto" && set.is_supported()) return set.kernels;
    if (name != set.kernels->name) continue;
    if (set.is_supported()) return set.kernels;
    return absl::UnavailableError(
        absl::StrCat("this processor has no ", set.kernels->name,
                     "; it has: ", absl::StrJoin(SupportedIsas(), ", ")));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown instruction set \"", std::string(name),
                   "\"; known: auto, ", absl::StrJoin(known, ", ")));
}

}  // namespace flash::cpu
