// A RequestSink that keeps what it is told and insists on the order that
// request.h promises.

#ifndef TESTS_SERVER_SCHEDULER_RECORDING_SINK_H_
#define TESTS_SERVER_SCHEDULER_RECORDING_SINK_H_

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/mutex.h"
#include "server/scheduler/request.h"

namespace flash {

// Everything that is told about a token, in one comparable line.
inline std::string Line(const TokenInfo& token) {
  std::ostringstream line;
  line << std::hexfloat << "id " << token.id << " piece '" << token.piece
       << "'";
  if (token.logprob.has_value()) {
    line << " logprob " << *token.logprob << " rank " << token.rank;
  }
  for (const Candidate& each : token.candidates) {
    line << " {" << each.id << " " << each.logprob << " " << each.rank << " '"
         << each.piece << "'}";
  }
  return line.str();
}

inline std::string Line(const TokenOutput& token) {
  std::ostringstream line;
  line << token.output_index << "[" << token.token_index << "] "
       << Line(token.token) << " text '" << token.text << "' at "
       << token.text_offset;
  return line.str();
}

inline std::string Line(const Finished& finished) {
  std::ostringstream line;
  line << finished.output_index << " finished "
       << static_cast<int>(finished.reason) << " stop "
       << finished.stop_token_id << " '" << finished.stop_string << "' text '"
       << finished.text << "' at " << finished.text_offset << " after "
       << finished.num_tokens;
  return line.str();
}

// Thread safety: the flags from any thread; what was recorded once done().
class RecordingSink final : public RequestSink {
 public:
  struct Output {
    std::vector<int32_t> ids;
    std::string text;  // as streamed
    std::vector<std::string> lines;
    std::vector<std::string> tokens;  // of the lines, what is not of its place
    std::optional<Finished> finished;
  };

  void OnAccepted(const Accepted& told) override {
    EXPECT_FALSE(accepted.has_value() || done());
    accepted = told;
  }
  void OnPrompt(PromptOutput told) override {
    EXPECT_TRUE(accepted.has_value() && !prompt.has_value() && !done());
    EXPECT_TRUE(outputs.empty());
    prompt = std::move(told);
  }
  void OnToken(TokenOutput told) override {
    EXPECT_TRUE(accepted.has_value() && !done());
    Output& output = outputs[told.output_index];
    EXPECT_FALSE(output.finished.has_value());
    const int64_t before = static_cast<int64_t>(output.ids.size());
    if (before == 0) {
      first_index_[told.output_index] = told.token_index;
      first_offset_[told.output_index] = told.text_offset;
    }
    EXPECT_EQ(told.token_index, first_index_[told.output_index] + before);
    CheckOffset(told.output_index, told.text_offset);
    output.lines.push_back(Line(told));
    output.tokens.push_back(Line(told.token));
    output.ids.push_back(told.token.id);
    output.text += told.text;
    if (on_token) on_token(output.ids.size());
  }
  void OnFinished(Finished told) override {
    EXPECT_TRUE(accepted.has_value() && !done());
    Output& output = outputs[told.output_index];
    EXPECT_FALSE(output.finished.has_value());
    if (!output.ids.empty()) {
      EXPECT_EQ(told.num_tokens, first_index_[told.output_index] +
                                     static_cast<int64_t>(output.ids.size()));
      CheckOffset(told.output_index, told.text_offset);
    }
    output.lines.push_back(Line(told));
    output.text += told.text;
    output.finished = std::move(told);
  }
  void OnDone(const absl::Status& told, const Usage& told_usage,
              const Timings& told_timings) override {
    EXPECT_FALSE(done());
    usage = told_usage;
    timings = told_timings;
    MutexLock lock(&mutex_);
    status_ = told;
    changed_.NotifyAll();
  }
  bool IsCancelled() const override { return cancelled; }
  int64_t Room() const override { return full ? 0 : room.load(); }

  bool done() const {
    MutexLock lock(&mutex_);
    return status_.has_value();
  }
  // REQUIRES: done().
  absl::Status status() const {
    MutexLock lock(&mutex_);
    return status_.value();
  }
  void WaitUntilDone() const {
    MutexLock lock(&mutex_);
    while (!status_.has_value()) changed_.Wait(&mutex_);
  }

  // What a test may set.
  std::atomic<bool> cancelled{false};
  std::atomic<bool> full{false};
  std::atomic<int64_t> room{1000};  // unless full
  std::function<void(size_t num_tokens)> on_token;

  // What was told.
  std::optional<Accepted> accepted;
  std::optional<PromptOutput> prompt;
  std::map<int32_t, Output> outputs;
  Usage usage;
  Timings timings;

 private:
  void CheckOffset(int32_t index, int64_t offset) {
    EXPECT_EQ(offset, first_offset_[index] +
                          static_cast<int64_t>(outputs[index].text.size()));
  }

  std::map<int32_t, int64_t> first_index_;
  std::map<int32_t, int64_t> first_offset_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flash

#endif  // TESTS_SERVER_SCHEDULER_RECORDING_SINK_H_
