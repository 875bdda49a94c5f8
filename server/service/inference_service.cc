#include "server/service/inference_service.h"

#include <chrono>
#include <utility>

#include "flash/v1/inference.grpc.pb.h"
#include "server/service/byte_messages.h"
#include "server/service/collectors.h"
#include "server/service/token_stream.h"
#include "server/service/unary_call.h"
#include "server/service/worker_call.h"

namespace flash {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

// gRPC's deadline is in wall-clock time; ours must not jump with it.
std::optional<Clock::time_point> DeadlineOf(
    const CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) {
    return std::nullopt;
  }
  const auto left = deadline - std::chrono::system_clock::now();
  if (left > std::chrono::hours(24 * 365)) return std::nullopt;
  return Clock::now() + left;
}

CallOrigin OriginOf(const CallParts& parts, const char* method,
                    const CallbackServerContext& context) {
  return {.method = method,
          .peer = context.peer(),
          .owner = parts.identity->OwnerOf(context),
          .deadline = DeadlineOf(context)};
}

absl::StatusOr<ByteBuffer> TokenizeAnswer(const CallParts& parts,
                                          const ByteBuffer& bytes) {
  v1::TokenizeRequest request;
  const absl::Status status = FromByteBuffer(bytes, request);
  if (!status.ok()) return status;
  auto ids = parts.parser->Tokenize(request);
  if (!ids.ok()) return ids.status();
  v1::TokenizeResult result;
  *result.mutable_token_ids() = {ids->begin(), ids->end()};
  if (request.pieces()) {
    for (std::string& piece : parts.parser->PiecesOf(*ids)) {
      result.add_pieces(std::move(piece));
    }
  }
  return ToByteBuffer(result);
}

absl::StatusOr<ByteBuffer> DetokenizeAnswer(const CallParts& parts,
                                            const ByteBuffer& bytes) {
  v1::DetokenizeRequest request;
  const absl::Status status = FromByteBuffer(bytes, request);
  if (!status.ok()) return status;
  auto text = parts.parser->Detokenize(request);
  if (!text.ok()) return text.status();
  v1::DetokenizeResult result;
  result.set_text(*std::move(text));
  return ToByteBuffer(result);
}

using RawService = v1::Inference::WithRawCallbackMethod_Generate<
    v1::Inference::WithRawCallbackMethod_GenerateUnary<
        v1::Inference::WithRawCallbackMethod_Score<
            v1::Inference::WithRawCallbackMethod_Tokenize<
                v1::Inference::WithRawCallbackMethod_Detokenize<
                    v1::Inference::Service>>>>>;

class InferenceService final : public RawService {
 public:
  explicit InferenceService(const CallParts& parts) : parts_(parts) {}

  grpc::ServerWriteReactor<ByteBuffer>* Generate(
      CallbackServerContext* context, const ByteBuffer* request) override {
    auto stream = TokenStream::Start(
        parts_, OriginOf(parts_, "Generate", *context), context);
    Admit<v1::GenerateRequest>(*request, stream);
    return stream.get();
  }

  grpc::ServerUnaryReactor* GenerateUnary(CallbackServerContext* context,
                                          const ByteBuffer* request,
                                          ByteBuffer* response) override {
    auto call = UnaryCall::Start(
        parts_, OriginOf(parts_, "GenerateUnary", *context),
        {context, response}, std::make_unique<GenerateCollector>());
    Admit<v1::GenerateRequest>(*request, call);
    return call.get();
  }

  grpc::ServerUnaryReactor* Score(CallbackServerContext* context,
                                  const ByteBuffer* request,
                                  ByteBuffer* response) override {
    auto call = UnaryCall::Start(parts_, OriginOf(parts_, "Score", *context),
                                 {context, response},
                                 std::make_unique<ScoreCollector>());
    Admit<v1::ScoreRequest>(*request, call);
    return call.get();
  }

  grpc::ServerUnaryReactor* Tokenize(CallbackServerContext* context,
                                     const ByteBuffer* request,
                                     ByteBuffer* response) override {
    return RunText(*request, {context, response}, [this, bytes = *request] {
      return TokenizeAnswer(parts_, bytes);
    });
  }

  grpc::ServerUnaryReactor* Detokenize(CallbackServerContext* context,
                                       const ByteBuffer* request,
                                       ByteBuffer* response) override {
    return RunText(*request, {context, response}, [this, bytes = *request] {
      return DetokenizeAnswer(parts_, bytes);
    });
  }

 private:
  // On a worker if `request` is a long text.
  grpc::ServerUnaryReactor* RunText(
      const ByteBuffer& request, UnarySlots slots,
      std::function<absl::StatusOr<ByteBuffer>()> work) {
    const bool is_long = request.Length() > kLongTextBytes;
    return WorkerCall::Start(parts_.linger, slots,
                             {is_long ? parts_.text_workers : nullptr,
                              request.Length(), std::move(work)});
  }

  const CallParts& parts_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeInferenceService(const CallParts& parts) {
  return std::make_unique<InferenceService>(parts);
}

}  // namespace flash
