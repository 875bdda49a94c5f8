// How much of this machine the process may use: what "auto" flags become.

#ifndef SERVER_MACHINE_H_
#define SERVER_MACHINE_H_

#include <cstdint>
#include <string>

namespace flash {

// Processors that this process may use: its affinity, and its cgroup's quota
// rounded up. At least 1, at most 1024.
int UsableProcessors();

// Bytes of memory that this process may still take: what the machine has
// available, and what its cgroup's limit leaves.
int64_t UsableMemoryBytes();

// The processor's name, as the system gives it; "unknown" if it does not.
std::string ProcessorName();

// As above, reading the system's files below `root` instead of "/", and with
// `affinity` processors.
int UsableProcessorsBelow(const std::string& root, int affinity);
int64_t UsableMemoryBytesBelow(const std::string& root);

}  // namespace flash

#endif  // SERVER_MACHINE_H_
