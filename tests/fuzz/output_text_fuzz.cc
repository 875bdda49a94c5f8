// Feeds OutputText any bytes as tokens and any text as stop strings: what comes
// out is valid UTF-8, in order, and the beginning of the whole text; without a
// match it is all of it.
//
// The input: the number of stop strings (low 2 bits), whether the stop string
// is kept, and min_tokens in one byte; the stop strings, each ended by a
// newline; then the ids.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/check.h"
#include "server/scheduler/output_text.h"
#include "server/tokenizer/byte_tokenizer.h"

namespace flash {
namespace {

std::vector<std::string> TakeStops(std::string_view& input, int count) {
  std::vector<std::string> stops;
  for (int i = 0; i < count; ++i) {
    const size_t end = std::min(input.find('\n'), input.size());
    stops.emplace_back(input.substr(0, end));
    input.remove_prefix(std::min(end + 1, input.size()));
    // The service refuses any other.
    if (!IsValidUtf8(stops.back())) stops.pop_back();
  }
  return stops;
}

void Run(std::string_view input) {
  if (input.empty()) return;
  const auto head = static_cast<unsigned char>(input.front());
  input.remove_prefix(1);
  const std::vector<std::string> stops = TakeStops(input, head & 3);
  const bool keep = (head & 4) != 0;
  const size_t min_tokens = head >> 3;

  const ByteTokenizer tokenizer;
  const std::vector<int32_t> ids =
      *tokenizer.Encode(input, Tokenizer::Place::kFirst);
  const std::string whole = Decode(tokenizer, ids);
  OutputText output(
      tokenizer, {}, std::make_shared<StopStrings>(stops),
      keep ? OutputText::StopText::kKept : OutputText::StopText::kDropped);
  std::string text;
  bool stopped = false;
  for (size_t i = 0; i < ids.size() && !stopped; ++i) {
    const OutputText::Released released =
        output.Push(ids[i], i < min_tokens ? OutputText::Stops::kPassOver
                                           : OutputText::Stops::kMatch);
    FLASH_CHECK(released.offset == static_cast<int64_t>(text.size()));
    FLASH_CHECK(IsValidUtf8(released.text));
    text += released.text;
    FLASH_CHECK(whole.starts_with(text));
    stopped = released.stop.has_value();
    FLASH_CHECK(!stopped || !keep || text.ends_with(stops[*released.stop]));
  }
  text += output.Finish().text;
  FLASH_CHECK(stopped ? whole.starts_with(text) : text == whole);
}

}  // namespace
}  // namespace flash

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  flash::Run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
