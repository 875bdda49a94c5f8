// The CPU behind the border of backend.h.

#ifndef KERNELS_CPU_CPU_BACKEND_H_
#define KERNELS_CPU_CPU_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/thread_pool.h"

namespace flash {

// A backend that computes on this machine's processors, on the threads of
// `pool`, with the kernels of the instruction set `isa` ("auto": the fastest
// that this processor has; see cpu/isa.h for names and errors). `pool` must
// outlive it.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(ThreadPool& pool,
                                                        const std::string& isa);

}  // namespace flash

#endif  // KERNELS_CPU_CPU_BACKEND_H_
