#include "server/scheduler/output_text.h"

#include <utility>

#include "kernels/check.h"

namespace flash {

OutputText::OutputText(const Tokenizer& tokenizer, const Point& point,
                       std::shared_ptr<const StopStrings> stops,
                       StopText stop_text)
    : detokenizer_(tokenizer, point.place, point.incomplete),
      stops_(stops != nullptr ? std::move(stops)
                              : std::make_shared<const StopStrings>(
                                    std::span<const std::string>())),
      search_(*stops_),
      stop_text_(stop_text),
      held_(point.held) {
  search_.PassOver(held_);
}

OutputText::Point OutputText::point() const {
  return {detokenizer_.place(), std::string(detokenizer_.incomplete()), held_};
}

OutputText::Released OutputText::Push(int32_t id, Stops stops) {
  FLASH_CHECK(!over_);
  const std::string text = detokenizer_.Push(id);
  const size_t held_before = held_.size();
  held_ += text;
  if (stops == Stops::kPassOver) {
    search_.PassOver(text);
    return Release(search_.num_held());
  }
  const std::optional<StopSearch::Match> match = search_.FindIn(text);
  if (!match) return Release(search_.num_held());

  over_ = true;
  // The whole match stands in held_: all of it but this token's part was held
  // back because it could become one.
  const size_t stop_bytes = stops_->string(match->index).size();
  const size_t end = held_before + match->end -
                     (stop_text_ == StopText::kKept ? 0 : stop_bytes);
  const bool hides = end < held_.size() || !detokenizer_.incomplete().empty();
  held_.resize(end);
  Released released = Release(0);
  released.stop = match->index;
  released.hides = hides;
  return released;
}

OutputText::Released OutputText::Finish() {
  if (!over_) held_ += detokenizer_.Flush();
  over_ = true;
  return Release(0);
}

OutputText::Released OutputText::Release(size_t num_held) {
  Released released;
  released.offset = released_;
  released.text = held_.substr(0, held_.size() - num_held);
  held_.erase(0, released.text.size());
  released_ += static_cast<int64_t>(released.text.size());
  return released;
}

}  // namespace flash
