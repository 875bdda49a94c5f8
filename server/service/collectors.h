// A stream's events gathered into the one message of a unary call.

#ifndef SERVER_SERVICE_COLLECTORS_H_
#define SERVER_SERVICE_COLLECTORS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "flash/v1/inference.pb.h"
#include "server/scheduler/request.h"
#include "server/service/wire_events.h"

namespace flash {

// The events come in the order of RequestSink.
//
// Thread safety: one thread at a time.
class Collector {
 public:
  virtual ~Collector() = default;

  virtual void OnAccepted(const Accepted& accepted,
                          const RequestFacts& facts) = 0;
  virtual void OnPrompt(PromptOutput prompt) = 0;
  virtual void OnToken(TokenOutput token) = 0;
  virtual void OnFinished(Finished finished,
                          const std::optional<SessionInfo>& session) = 0;
  // The request ended well.
  virtual void OnUsage(const Usage& usage, const Timings& timings) = 0;

  // Complete after OnUsage().
  virtual const google::protobuf::Message& result() const = 0;
};

// For GenerateUnary: each text is that of the stream's events, put together.
class GenerateCollector final : public Collector {
 public:
  void OnAccepted(const Accepted& accepted, const RequestFacts& facts) override;
  void OnPrompt(PromptOutput prompt) override;
  void OnToken(TokenOutput token) override;
  void OnFinished(Finished finished,
                  const std::optional<SessionInfo>& session) override;
  void OnUsage(const Usage& usage, const Timings& timings) override;
  const v1::GenerateResult& result() const override { return result_; }

 private:
  // Appends `text`, which begins `offset` bytes into the output's text.
  v1::Output& AppendText(int32_t output_index, const std::string& text,
                         int64_t offset);

  v1::GenerateResult result_;
};

// For Score: only the prompt's logprobs.
class ScoreCollector final : public Collector {
 public:
  void OnAccepted(const Accepted& accepted, const RequestFacts& facts) override;
  void OnPrompt(PromptOutput prompt) override;
  void OnToken(TokenOutput) override {}
  void OnFinished(Finished, const std::optional<SessionInfo>&) override {}
  void OnUsage(const Usage& usage, const Timings& timings) override;
  const v1::ScoreResult& result() const override { return result_; }

 private:
  v1::ScoreResult result_;
};

}  // namespace flash

#endif  // SERVER_SERVICE_COLLECTORS_H_
