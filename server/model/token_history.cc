#include "server/model/token_history.h"

#include <bit>

#include "kernels/check.h"

namespace flash {

TokenHistory::TokenHistory(int32_t window) : window_(window) {
  FLASH_CHECK(window >= 0);
  if (window == 0) return;
  ring_.resize(window);
  entries_.resize(window);
  const uint32_t places = std::bit_ceil(2 * static_cast<uint32_t>(window));
  table_.assign(places, -1);
  hash_shift_ = 32 - std::countr_zero(places);
}

void TokenHistory::AppendPrompt(std::span<const int32_t> ids) {
  // What would fall out at once need not be counted.
  if (ids.size() > static_cast<size_t>(window_)) ids = ids.last(window_);
  for (const int32_t id : ids) Append(2 * static_cast<Token>(id));
}

void TokenHistory::AppendOutput(int32_t id) {
  Append(2 * static_cast<Token>(id) + 1);
}

void TokenHistory::Append(Token token) {
  if (window_ == 0) return;
  // Forget first: entries_ and table_ hold `window_` ids at most.
  if (num_tokens_ == window_) {
    Forget(ring_[next_]);
  } else {
    ++num_tokens_;
  }
  ring_[next_] = token;
  next_ = next_ + 1 == window_ ? 0 : next_ + 1;
  Count(token);
}

void TokenHistory::Count(Token token) {
  const int32_t id = static_cast<int32_t>(token >> 1);
  const uint32_t place = Find(id);
  if (table_[place] < 0) {
    table_[place] = num_entries_;
    entries_[num_entries_++] = {id, 0, 0};
  }
  Entry& entry = entries_[table_[place]];
  ++entry.in_all;
  entry.in_output += static_cast<int32_t>(token & 1);
}

void TokenHistory::Forget(Token token) {
  const uint32_t place = Find(static_cast<int32_t>(token >> 1));
  const int32_t index = table_[place];
  Entry& entry = entries_[index];
  entry.in_output -= static_cast<int32_t>(token & 1);
  if (--entry.in_all > 0) return;
  // The last entry takes the place of the one that goes.
  const Entry& last = entries_[--num_entries_];
  table_[Find(last.id)] = index;
  entry = last;
  Vacate(place);
}

uint32_t TokenHistory::Home(int32_t id) const {
  // Fibonacci hashing: the high bits of the product.
  return (static_cast<uint32_t>(id) * 0x9E3779B9u) >> hash_shift_;
}

uint32_t TokenHistory::Find(int32_t id) const {
  const uint32_t mask = static_cast<uint32_t>(table_.size()) - 1;
  uint32_t place = Home(id);
  while (table_[place] >= 0 && entries_[table_[place]].id != id) {
    place = (place + 1) & mask;
  }
  return place;
}

void TokenHistory::Vacate(uint32_t place) {
  const uint32_t mask = static_cast<uint32_t>(table_.size()) - 1;
  uint32_t gap = place;
  for (uint32_t next = (gap + 1) & mask; table_[next] >= 0;
       next = (next + 1) & mask) {
    // An entry may move back into the gap unless its home lies after the gap.
    const uint32_t home = Home(entries_[table_[next]].id);
    if (((next - home) & mask) < ((next - gap) & mask)) continue;
    table_[gap] = table_[next];
    gap = next;
  }
  table_[gap] = -1;
}

}  // namespace flash
