// What a request gets where the client did not choose. Any thread.

#ifndef SERVER_SERVICE_RANDOM_IDS_H_
#define SERVER_SERVICE_RANDOM_IDS_H_

#include <cstdint>
#include <string>

namespace flash {

uint64_t RandomSeed();

// As "req-0123456789abcdef": unlikely enough to repeat for logs of many
// servers.
std::string RandomRequestId();

}  // namespace flash

#endif  // SERVER_SERVICE_RANDOM_IDS_H_
