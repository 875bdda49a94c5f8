// Whatever bytes a client sends, to any call that takes a request: they go
// through what gRPC's bytes go through, and the answer is one within the limits
// or a status that fits into a trailer.

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>

#include "flash/v1/inference.pb.h"
#include "google/protobuf/stubs/logging.h"
#include "kernels/check.h"
#include "server/service/byte_messages.h"
#include "server/service/request_parser.h"
#include "server/tokenizer/byte_tokenizer.h"

namespace flash {
namespace {

constexpr size_t kMaxPromptTokens = 1000;

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
  limits.max_prompt_tokens = kMaxPromptTokens;
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
void TryRequest(const RequestParser& parser, const grpc::ByteBuffer& bytes) {
  WireRequest wire;
  const absl::Status read = FromByteBuffer(bytes, wire);
  if (!read.ok()) return CheckStatus(read);
  auto request = parser.Parse(wire);
  if (!request.ok()) return CheckStatus(request.status());
  absl::Status status = parser.ReadPrompt(InputOf(wire), **request);
  if (status.ok()) status = parser.Settle(**request);
  if (!status.ok()) return CheckStatus(status);
  FLASH_CHECK(!(*request)->prompt.empty() || !SessionUseOf(wire).id.empty());
  FLASH_CHECK((*request)->prompt.size() <= kMaxPromptTokens);
  for (const int32_t id : (*request)->prompt) {
    FLASH_CHECK(id >= 0 && id < 260);
  }
  FLASH_CHECK((*request)->stopping.max_tokens >= 0);
  FLASH_CHECK((*request)->stopping.min_tokens <=
              (*request)->stopping.max_tokens);
  FLASH_CHECK((*request)->sampling.top_p > 0);
}

void TryTokenizer(const RequestParser& parser, const grpc::ByteBuffer& bytes) {
  v1::TokenizeRequest text;
  const absl::Status read = FromByteBuffer(bytes, text);
  if (!read.ok()) return CheckStatus(read);
  const auto ids = parser.Tokenize(text);
  if (!ids.ok()) return CheckStatus(ids.status());
  FLASH_CHECK(ids->size() <= kMaxPromptTokens);
  FLASH_CHECK(parser.PiecesOf(*ids).size() == ids->size());
}

void TryDetokenizer(const RequestParser& parser,
                    const grpc::ByteBuffer& bytes) {
  v1::DetokenizeRequest ids;
  const absl::Status read = FromByteBuffer(bytes, ids);
  if (!read.ok()) return CheckStatus(read);
  const auto back = parser.Detokenize(ids);
  if (!back.ok()) return CheckStatus(back.status());
  // A byte that is no character becomes three.
  FLASH_CHECK(back->size() <= 3 * kMaxPromptTokens);
}

}  // namespace
}  // namespace flash

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const flash::RequestParser parser = flash::MakeParser();
  google::protobuf::SetLogHandler(nullptr);
  const grpc::Slice slice(data, size);
  const grpc::ByteBuffer bytes(&slice, 1);
  flash::TryRequest<flash::v1::GenerateRequest>(parser, bytes);
  flash::TryRequest<flash::v1::ScoreRequest>(parser, bytes);
  flash::TryTokenizer(parser, bytes);
  flash::TryDetokenizer(parser, bytes);
  return 0;
}
