#include "server/service/inference_service.h"

#include <chrono>
#include <utility>

#include "flash/v1/inference.grpc.pb.h"
#include "server/service/byte_messages.h"
#include "server/service/collectors.h"
#include "server/service/errors.h"
#include "server/service/linger.h"
#include "server/service/token_stream.h"
#include "server/service/unary_call.h"

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

CallOrigin OriginOf(const char* method, const CallbackServerContext& context) {
  return {.method = method,
          .peer = context.peer(),
          .deadline = DeadlineOf(context)};
}

// A call that the tokenizer answers. It is over when `work` has run, and
// cancelled if the client then reads nothing for parts.linger.
//
// Thread safety: Start() on any thread; the rest is gRPC's and the worker's.
class TokenizerCall final : public grpc::ServerUnaryReactor {
 public:
  // `work` makes the answer, on a worker if `bytes` is a long text.
  static grpc::ServerUnaryReactor* Start(
      const CallParts& parts, size_t num_bytes, UnarySlots slots,
      std::function<absl::StatusOr<ByteBuffer>()> work) {
    auto* call = new TokenizerCall(parts, slots);
    call->self_.reset(call);
    auto run = [call, slots, work = std::move(work)] {
      // Whoever has left while others' texts were read gets no work done.
      absl::StatusOr<ByteBuffer> answer = absl::CancelledError("cancelled");
      if (!slots.context->IsCancelled()) answer = work();
      if (answer.ok()) *slots.response = *std::move(answer);
      call->End(answer.status());
    };
    if (num_bytes <= kLongTextBytes) {
      run();
      return call;
    }
    const absl::Status taken =
        parts.text_workers->TryRun(num_bytes, std::move(run));
    if (!taken.ok()) call->End(taken);
    return call;
  }

  void OnDone() override {
    const std::unique_ptr<TokenizerCall> self = std::move(self_);
    linger_->Stop();
  }

 private:
  TokenizerCall(const CallParts& parts, UnarySlots slots)
      : context_(*slots.context),
        linger_(std::make_shared<Linger>(slots.context, parts.linger)) {}

  void End(const absl::Status& status) {
    AddRetryTrailer(status, context_);
    linger_->Start();
    Finish(ToGrpcStatus(status));
  }

  CallbackServerContext& context_;
  const std::shared_ptr<Linger> linger_;
  std::unique_ptr<TokenizerCall> self_;  // set by Start(), dropped by OnDone()
};

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
    auto stream =
        TokenStream::Start(parts_, OriginOf("Generate", *context), context);
    Admit<v1::GenerateRequest>(*request, stream);
    return stream.get();
  }

  grpc::ServerUnaryReactor* GenerateUnary(CallbackServerContext* context,
                                          const ByteBuffer* request,
                                          ByteBuffer* response) override {
    auto call = UnaryCall::Start(parts_, OriginOf("GenerateUnary", *context),
                                 {context, response},
                                 std::make_unique<GenerateCollector>());
    Admit<v1::GenerateRequest>(*request, call);
    return call.get();
  }

  grpc::ServerUnaryReactor* Score(CallbackServerContext* context,
                                  const ByteBuffer* request,
                                  ByteBuffer* response) override {
    auto call = UnaryCall::Start(parts_, OriginOf("Score", *context),
                                 {context, response},
                                 std::make_unique<ScoreCollector>());
    Admit<v1::ScoreRequest>(*request, call);
    return call.get();
  }

  grpc::ServerUnaryReactor* Tokenize(CallbackServerContext* context,
                                     const ByteBuffer* request,
                                     ByteBuffer* response) override {
    return TokenizerCall::Start(
        parts_, request->Length(), {context, response},
        [this, bytes = *request] { return TokenizeAnswer(parts_, bytes); });
  }

  grpc::ServerUnaryReactor* Detokenize(CallbackServerContext* context,
                                       const ByteBuffer* request,
                                       ByteBuffer* response) override {
    return TokenizerCall::Start(
        parts_, request->Length(), {context, response},
        [this, bytes = *request] { return DetokenizeAnswer(parts_, bytes); });
  }

 private:
  const CallParts& parts_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeInferenceService(const CallParts& parts) {
  return std::make_unique<InferenceService>(parts);
}

}  // namespace flash
