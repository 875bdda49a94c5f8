// What a client has of one Generate call that may take several streams: what of
// the next stream is new to it, and what the next stream is to be asked for.

#ifndef CLIENT_STREAM_PROGRESS_H_
#define CLIENT_STREAM_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flash/v1/inference.pb.h"

namespace flash {

// Outputs are deterministic, so a stream that ended too early goes on in
// another one, which is sent what the first had (prior_output_ids). Events are
// told apart by output and token index, texts by their offsets: together the
// events that Take() lets pass are those of one stream that was never cut.
//
// Thread safety: one thread at a time.
class StreamProgress {
 public:
  // A request that claims a session gets an id of its own, if it has none.
  explicit StreamProgress(v1::GenerateRequest request);

  // The request for the next stream, whose events Take() is then given.
  // `elapsed`: since the call was accepted, of its time limit.
  v1::GenerateRequest BeginStream(std::chrono::milliseconds elapsed);

  // Leaves of `event` what is new; false if nothing is. FAILED_PRECONDITION if
  // it is not of the same answer; INTERNAL if something before it is missing.
  absl::StatusOr<bool> Take(v1::GenerateEvent& event);

  // At the end of a stream: an event that is due now, if there is one.
  std::optional<v1::GenerateEvent> TakeHeld();

  bool accepted() const { return accepted_.has_value(); }
  // Whether the last stream may be followed by another although nobody knows
  // what the server made of it: not if it may have written a session under an
  // id that does not tell.
  bool may_begin_again() const {
    return accepted() || !ClaimsSession() || has_own_id_;
  }
  // Every output is over.
  bool complete() const;
  // Of all outputs, those included that the caller had before.
  uint64_t num_tokens() const;

 private:
  struct Output {
    std::vector<uint32_t> ids;
    // Bytes of its text that were told, and of what came before; unset until
    // an event tells where the text goes on.
    std::optional<uint64_t> text_bytes;
    bool finished = false;
  };

  absl::StatusOr<bool> TakeAccepted(const v1::Accepted& accepted);
  absl::StatusOr<bool> TakePrompt(v1::PromptOutput& prompt);
  absl::StatusOr<bool> TakeToken(v1::TokenOutput& token);
  absl::StatusOr<bool> TakeFinished(v1::GenerateEvent& event);
  absl::StatusOr<Output*> Find(uint32_t output_index);
  bool has_news() const;
  bool ClaimsSession() const {
    return request_.has_session() && !request_.session().unchanged();
  }
  void Correct(v1::Usage& usage) const;

  v1::GenerateRequest request_;
  bool has_own_id_ = false;  // that is random
  std::optional<v1::Accepted> accepted_;
  std::vector<Output> outputs_;
  uint64_t num_streams_ = 0;

  // Of the prompt: what was told, and where this stream is in its text.
  uint64_t prompt_tokens_told_ = 0;
  uint64_t prompt_bytes_told_ = 0;
  uint64_t prompt_bytes_ = 0;

  // The end of the output that ends last, until the end of one that had ended
  // in an earlier stream brings what belongs to it: usage and timing.
  std::optional<v1::GenerateEvent> held_;
};

}  // namespace flash

#endif  // CLIENT_STREAM_PROGRESS_H_
