// Prefix states that keep everything that they are given.

#ifndef TESTS_SERVER_SCHEDULER_FAKE_PREFIX_STATES_H_
#define TESTS_SERVER_SCHEDULER_FAKE_PREFIX_STATES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/scheduler/prefix_states.h"

namespace flash {

// Thread safety: one thread at a time.
class FakePrefixStates final : public PrefixStates {
 public:
  PrefixKey KeyOfNothing(std::string_view owner) const override {
    PrefixKey key = {};
    key[0] = static_cast<uint8_t>(owner.size());
    return key;
  }
  // No hash, but these tests' tokens do not collide.
  PrefixKey KeyAfter(const PrefixKey& before,
                     std::span<const int32_t> chunk) const override {
    PrefixKey key = before;
    uint64_t hash = 1469598103934665603u;
    for (const uint8_t byte : before) hash = (hash ^ byte) * 1099511628211u;
    for (const int32_t id : chunk) hash = (hash ^ id) * 1099511628211u;
    std::memcpy(&key[8], &hash, sizeof(hash));
    return key;
  }
  std::optional<Found> Find(std::span<const PrefixKey> keys) override {
    for (size_t n = std::min(keys.size(), most_chunks); n > 0; --n) {
      const auto state = states.find(keys[n - 1]);
      if (state != states.end()) return Found{n, state->second};
    }
    return std::nullopt;
  }
  bool Wants(std::span<const PrefixKey> keys, size_t num_chunks) override {
    EXPECT_LE(num_chunks, keys.size());
    return wants && !states.contains(keys[num_chunks - 1]);
  }
  std::vector<std::shared_ptr<const std::string>> Put(
      std::span<const PrefixKey> keys, size_t num_chunks,
      std::shared_ptr<const std::string> state) override {
    states[keys[num_chunks - 1]] = std::move(state);
    return {};
  }

  bool wants = true;
  size_t most_chunks = 1000;
  std::map<PrefixKey, std::shared_ptr<const std::string>> states;
};

}  // namespace flash

#endif  // TESTS_SERVER_SCHEDULER_FAKE_PREFIX_STATES_H_
