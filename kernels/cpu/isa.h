// Which instruction sets the CPU kernels are compiled for, and which of them
// this processor has.

#ifndef KERNELS_CPU_ISA_H_
#define KERNELS_CPU_ISA_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/kernel_table.h"

namespace flash::cpu {

// Names of the sets that this processor can run, the fastest first; the last
// one is "portable".
std::vector<std::string> SupportedIsas();

// The kernels of the set called `name`, "auto" for the fastest that this
// processor has. INVALID_ARGUMENT if there is no such set; UNAVAILABLE if this
// processor has not got it.
absl::StatusOr<const KernelTable*> FindKernels(std::string_view name);

}  // namespace flash::cpu

#endif  // KERNELS_CPU_ISA_H_
