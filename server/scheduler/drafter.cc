#include "server/scheduler/drafter.h"

#include <algorithm>
#include <bit>

#include "kernels/check.h"
#include "server/model/language_model.h"

namespace flash {
namespace {

// A new text may repeat itself or not.
constexpr float kFirstChance = 0.5f;
// What one token weighs against all before it.
constexpr float kWeight = 1.0f / 8;

}  // namespace

Drafter::Drafter(int64_t window) {
  chances_.fill(kFirstChance);
  window = std::min(window, kMaxWindow);
  if (window <= 0) return;
  const uint32_t places =
      std::bit_ceil(std::max(static_cast<uint32_t>(window), 4u));
  mask_ = places - 1;
  hash_shift_ = 32 - std::countr_zero(2 * places);
  ring_.assign(places, 0);
  for (std::vector<uint32_t>& ends : ends_) ends.assign(2 * places, 0);
  run_.reserve(1 + kMaxDraftedTokens);
}

void Drafter::Append(int32_t id) {
  if (ring_.empty()) return;
  if (const Repeat repeat = FindRepeat(); repeat.period > 0) {
    const float right = At(size_ - repeat.period) == id ? 1 : 0;
    chances_[repeat.gram] += kWeight * (right - chances_[repeat.gram]);
  }
  ring_[size_++ & mask_] = id;
  for (size_t g = 0; g < kGramSizes.size(); ++g) {
    if (size_ < kGramSizes[g]) continue;
    uint32_t& end = ends_[g][Home(kGramSizes[g])];
    last_ends_[g] = end;
    end = static_cast<uint32_t>(size_);
  }
}

void Drafter::Append(std::span<const int32_t> ids) {
  const size_t most = std::min(ids.size(), ring_.size());
  for (const int32_t id : ids.last(most)) Append(id);
}

uint32_t Drafter::Home(int size) const {
  uint32_t hash = 0;
  for (int n = 1; n <= size; ++n) {
    hash = (hash + static_cast<uint32_t>(At(size_ - n))) * 0x9E3779B1u;
  }
  return hash >> hash_shift_;
}

Drafter::Repeat Drafter::FindRepeat() const {
  const int64_t known = std::min(size_, static_cast<int64_t>(ring_.size()));
  for (size_t g = 0; g < kGramSizes.size(); ++g) {
    const int64_t period = static_cast<uint32_t>(size_) - last_ends_[g];
    if (period == 0 || period + kGramSizes[g] > known) continue;
    bool same = true;
    for (int n = 1; n <= kGramSizes[g]; ++n) {
      same = same && At(size_ - n) == At(size_ - n - period);
    }
    if (same) return {g, period};
  }
  return {};
}

std::span<const int32_t> Drafter::Propose(int max_drafted, float least_chance) {
  FLASH_CHECK(size_ > 0);
  run_.assign(1, At(size_ - 1));
  if (size_ < resume_at_) return run_;
  const Repeat repeat = FindRepeat();
  if (repeat.period == 0) return run_;
  // The n-th guess is right if all before it are.
  float chance = chances_[repeat.gram];
  for (int64_t n = 0; n < max_drafted && chance >= least_chance; ++n) {
    // Where the memory ends, the guesses themselves are what is repeated.
    run_.push_back(n < repeat.period ? At(size_ - repeat.period + n)
                                     : run_[1 + n - repeat.period]);
    chance *= chances_[repeat.gram];
  }
  return run_;
}

}  // namespace flash
