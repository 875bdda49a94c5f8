#include "server/scheduler/prefix_keys.h"

#include <algorithm>
#include <span>

namespace flash {

std::vector<PrefixKey> PrefixKeysOf(const PrefixStates& states,
                                    const Request& request, int chunk_size) {
  std::vector<PrefixKey> keys;
  if (request.start != nullptr) return keys;
  std::span<const int32_t> prior;
  if (request.num_outputs == 1 && !request.prior_output_ids.empty()) {
    prior = request.prior_output_ids[0];
  }
  const std::span<const int32_t> prompt = request.prompt;
  const size_t size = chunk_size;
  PrefixKey key = states.KeyOfNothing(request.owner);
  keys.reserve((prompt.size() + prior.size()) / size);
  std::vector<int32_t> joined;  // the chunk in which the prompt ends
  for (size_t begin = 0; begin + size <= prompt.size() + prior.size();
       begin += size) {
    std::span<const int32_t> chunk;
    if (begin + size <= prompt.size()) {
      chunk = prompt.subspan(begin, size);
    } else if (begin >= prompt.size()) {
      chunk = prior.subspan(begin - prompt.size(), size);
    } else {
      joined.assign(prompt.begin() + begin, prompt.end());
      joined.insert(joined.end(), prior.begin(),
                    prior.begin() + (size - joined.size()));
      chunk = joined;
    }
    key = states.KeyAfter(key, chunk);
    keys.push_back(key);
  }
  return keys;
}

}  // namespace flash
