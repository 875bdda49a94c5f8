// What a client sees of a call, over a real port.

#ifndef TESTS_END_TO_END_CALLER_H_
#define TESTS_END_TO_END_CALLER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flash/v1/control.grpc.pb.h"
#include "flash/v1/inference.grpc.pb.h"
#include "flash/v1/sessions.grpc.pb.h"

namespace flash {

// One output as its events tell it.
struct Heard {
  std::vector<uint32_t> ids;
  std::vector<float> logprobs;
  std::string text;
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
  v1::Usage usage;
  uint64_t seed = 0;
  uint64_t session_epoch = 0;
  v1::Session session;  // that the output was saved to
  // The text's length when each token had been heard.
  std::vector<size_t> text_sizes;
  // False if an offset or an index was not the one that had to come.
  bool in_order = true;
  grpc::Status status;

  void Take(const v1::GenerateEvent& event);
};

// A connection of its own to one server.
class Caller {
 public:
  explicit Caller(const std::string& address);

  // Streams one output to its end.
  Heard Generate(const v1::GenerateRequest& request);

  // The bytes of a session; empty if it cannot be had.
  std::string Export(const std::string& id);
  // The new session's id; empty if it is refused.
  std::string Import(const std::string& bytes);
  std::vector<std::string> Fork(const std::string& id, uint32_t count);

  v1::Inference::Stub& inference() { return *inference_; }
  v1::Sessions::Stub& sessions() { return *sessions_; }
  v1::ServerInfo Info();
  v1::Load Load() { return Info().load(); }

  // Waits, at most `seconds`, until the server's load is as wanted.
  bool WaitFor(const std::function<bool(const v1::Load&)>& wanted, int seconds);

  // Likewise, until every slot is free and nothing is queued.
  bool WaitUntilIdle(int num_slots, int seconds = 20);

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Control::Stub> control_;
  std::unique_ptr<v1::Sessions::Stub> sessions_;
};

}  // namespace flash

#endif  // TESTS_END_TO_END_CALLER_H_
