// Whatever bytes a client sends: they are parsed, and the answer is a request
// within the limits or a status that fits into a trailer.

#include <cstddef>
#include <cstdint>
#include <string>

#include "flash/v1/inference.pb.h"
#include "google/protobuf/stubs/logging.h"
#include "kernels/check.h"
#include "server/service/errors.h"
#include "server/service/request_parser.h"
#include "server/tokenizer/byte_tokenizer.h"

namespace flash {
namespace {

RequestParser MakeParser() {
  static const ByteTokenizer tokenizer;
  ModelFacts model;
  model.name = "m";
  model.vocab_size = 260;
  model.num_pieces = 256;
  model.bos_token_id = 256;
  model.eos_token_ids = {0};
  model.has_text = true;
  ServiceLimits limits;
  limits.max_prompt_tokens = 1000;
  return RequestParser(limits, model, &tokenizer);
}

void CheckStatus(const absl::Status& status) {
  size_t size = status.message().size() * 2;
  status.ForEachPayload(
      [&size](absl::string_view url, const absl::Cord& value) {
        size += url.size() + value.size();
      });
  FLASH_CHECK(size < 6000);
}

template <typename WireRequest>
void Try(const RequestParser& parser, const std::string& bytes) {
  WireRequest wire;
  if (!wire.ParseFromString(bytes)) return;
  auto request = parser.Parse(wire);
  if (!request.ok()) return CheckStatus(request.status());
  const absl::Status status = parser.ReadPrompt(InputOf(wire), **request);
  if (!status.ok()) return CheckStatus(status);
  FLASH_CHECK(!(*request)->prompt.empty());
  FLASH_CHECK((*request)->prompt.size() <= 1000);
  for (const int32_t id : (*request)->prompt) {
    FLASH_CHECK(id >= 0 && id < 260);
  }
  FLASH_CHECK((*request)->stopping.max_tokens >= 0);
  FLASH_CHECK((*request)->stopping.min_tokens <=
              (*request)->stopping.max_tokens);
  FLASH_CHECK((*request)->sampling.top_p > 0);
}

}  // namespace
}  // namespace flash

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const flash::RequestParser parser = flash::MakeParser();
  google::protobuf::SetLogHandler(nullptr);
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  flash::Try<flash::v1::GenerateRequest>(parser, bytes);
  flash::Try<flash::v1::ScoreRequest>(parser, bytes);
  return 0;
}
