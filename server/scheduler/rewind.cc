#include "server/scheduler/rewind.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/check.h"

namespace flash {

Rewind::Rewind(const Tokenizer& tokenizer, const OutputText::Point& point,
               int64_t num_tokens, std::span<const int32_t> pending,
               SavedState base)
    : detokenizer_(tokenizer, point.place, point.incomplete),
      num_tokens_(num_tokens),
      base_(std::move(base)) {
  if (point.held.empty() && point.incomplete.empty()) {
    borders_.push_back({num_tokens, 0, point.place});
    return;
  }
  // The pending tokens are read again. They may begin within a character: then
  // what is read of it is wrong, but no border lies before its end.
  const Tokenizer::Place place =
      base_.position == 0 ? Tokenizer::Place::kFirst : Tokenizer::Place::kLater;
  Rewind again(tokenizer, {place},
               num_tokens - static_cast<int64_t>(pending.size()), {}, base_);
  for (const int32_t id : pending) again.Take(id);
  if (std::string_view(again.tail_).ends_with(point.held) &&
      again.detokenizer_.incomplete() == point.incomplete) {
    const int64_t before =
        again.text_size_ - static_cast<int64_t>(point.held.size());
    for (Border& border : again.borders_) border.text_end -= before;
    again.text_size_ -= before;
    *this = std::move(again);
    Release(0);
    return;
  }
  borders_.push_back({num_tokens - static_cast<int64_t>(pending.size()), 0,
                      Tokenizer::Place::kLater});
  tail_ = point.held;
  text_size_ = static_cast<int64_t>(tail_.size());
}

void Rewind::Push(int32_t id, int64_t released) {
  Take(id);
  Release(released);
}

void Rewind::Take(int32_t id) {
  const std::string text = detokenizer_.Push(id);
  ++num_tokens_;
  tail_ += text;
  text_size_ += static_cast<int64_t>(text.size());
  if (!detokenizer_.incomplete().empty()) return;
  // Of two borders in the same place of the text only the later one counts.
  if (borders_.back().text_end == text_size_) borders_.pop_back();
  borders_.push_back({num_tokens_, text_size_, detokenizer_.place()});
}

void Rewind::Release(int64_t released) {
  while (borders_.size() > 1 && borders_[1].text_end <= released) {
    tail_.erase(0, borders_[1].text_end - borders_[0].text_end);
    borders_.pop_front();
  }
}

Rewind::Cut Rewind::CutAt(int64_t size) {
  Release(size);
  const Border border = borders_.front();
  FLASH_CHECK(border.text_end <= size);
  borders_ = {border};
  return {border.num_tokens, border.place,
          tail_.substr(0, size - border.text_end)};
}

void Rewind::End() {
  borders_ = {{num_tokens_, text_size_, detokenizer_.place()}};
}

bool Rewind::Wants(int64_t position, int chunk_size) const {
  return position <= floor() &&
         position + chunk_size > std::min(floor(), num_tokens_);
}

SavedState Rewind::SetBase(SavedState base) {
  FLASH_CHECK(base.position >= base_.position && base.position <= floor());
  return std::exchange(base_, std::move(base));
}

}  // namespace flash
