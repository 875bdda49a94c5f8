// The keys of a request's whole chunks.

#ifndef SERVER_SCHEDULER_PREFIX_KEYS_H_
#define SERVER_SCHEDULER_PREFIX_KEYS_H_

#include <vector>

#include "server/scheduler/prefix_states.h"
#include "server/scheduler/request.h"

namespace flash {

// key[n] stands for the first n + 1 chunks of the prompt, or, if there is one
// output, of the prompt and its prior ids. None for a request that goes on from
// something. Takes time in proportion to the ids. Any thread.
std::vector<PrefixKey> PrefixKeysOf(const PrefixStates& states,
                                    const Request& request, int chunk_size);

}  // namespace flash

#endif  // SERVER_SCHEDULER_PREFIX_KEYS_H_
