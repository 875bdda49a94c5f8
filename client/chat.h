// A conversation: one session, to which lines are appended in turn.

#ifndef CLIENT_CHAT_H_
#define CLIENT_CHAT_H_

#include <grpcpp/support/status.h>

#include <functional>
#include <string>

#include "client/flash_client.h"
#include "client/resuming_client.h"
#include "flash/v1/inference.pb.h"

namespace flash {

struct ChatSettings {
  std::string session;  // to go on with; empty: the first line makes one
  std::string prefix;   // stand around each line
  std::string suffix;
  v1::GenerateRequest
      request;  // how the answers are made: no input, no session
};

// Thread safety: one thread at a time.
class Chat {
 public:
  // `client` is borrowed.
  Chat(ChatSettings settings, ResumingClient* client)
      : settings_(std::move(settings)), client_(*client) {}

  // Appends `line` and streams the answer; "" appends nothing, and the last
  // answer goes on. Unless OK, the session is as it was, and the line was never
  // said; but if no server was to be reached any more it may have been kept
  // with its whole answer. FAILED_PRECONDITION if there is nothing that could
  // go on.
  grpc::Status Say(const std::string& line, CancellableCall& call,
                   const std::function<void(v1::GenerateEvent&)>& on_event,
                   const std::function<void(const Resumption&)>& on_resumed);

  // Empty until the first line was answered.
  const std::string& session() const { return settings_.session; }

 private:
  ChatSettings settings_;
  ResumingClient& client_;
};

}  // namespace flash

#endif  // CLIENT_CHAT_H_
