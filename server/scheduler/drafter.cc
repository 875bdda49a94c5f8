#include "server/scheduler/drafter.h"

#include <algorithm>
#include <bit>

#include "kernels/check.h"
#include "server/model/language_model.h"

namespace flash {
namespace {

// A guess costs up to a quarter of a step (flash-bench: "rows a step"). With
// these, single guesses become rare where fewer than a third are right, and one
// in 64 tokens costs next to nothing.
constexpr int64_t kMostWait = 64;
constexpr int64_t kWaitGrowth = 2;
constexpr int64_t kWaitDecay = 4;

}  // namespace

Drafter::Drafter(int64_t window) {
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

int64_t Drafter::FindPeriod() const {
  const int64_t known = std::min<int64_t>(size_, ring_.size());
  for (size_t g = 0; g < kGramSizes.size(); ++g) {
    const int64_t period = static_cast<uint32_t>(size_) - last_ends_[g];
    if (period == 0 || period + kGramSizes[g] > known) continue;
    bool same = true;
    for (int n = 1; n <= kGramSizes[g]; ++n) {
      same = same && At(size_ - n) == At(size_ - n - period);
    }
    if (same) return period;
  }
  return 0;
}

std::span<const int32_t> Drafter::Propose(int max_drafted) {
  FLASH_CHECK(size_ > 0);
  run_.assign(1, At(size_ - 1));
  if (size_ < resume_at_) return run_;
  const int64_t period = FindPeriod();
  if (period == 0) return run_;
  const int drafted = std::min(max_drafted, length_);
  for (int64_t n = 0; n < drafted; ++n) {
    // Where the memory ends, the guesses themselves are what is repeated.
    run_.push_back(n < period ? At(size_ - period + n) : run_[1 + n - period]);
  }
  return run_;
}

void Drafter::Judge(int num_drafted, int num_right) {
  if (num_right == num_drafted) {
    if (num_drafted == length_) {  // else there was room for no more
      length_ = std::min(2 * length_, kMaxDraftedTokens);
    }
    wait_ = std::max<int64_t>(wait_ / kWaitDecay, 1);
    return;
  }
  length_ = std::max(num_right, 1);
  if (num_right > 0) return;
  resume_at_ = size_ + wait_;
  wait_ = std::min(wait_ * kWaitGrowth, kMostWait);
}

}  // namespace flash
