// A client of several servers that serve the same: a stream that is cut off
// goes on at the next one.

#ifndef CLIENT_RESUMING_CLIENT_H_
#define CLIENT_RESUMING_CLIENT_H_

#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/flash_client.h"
#include "flash/v1/inference.pb.h"

namespace flash {

struct ResumeOptions {
  bool resume = true;  // else a call is one stream
  // How long a call is tried again without anything new from it.
  std::chrono::milliseconds patience{60'000};
  // Between two tries; doubles from the first to the longest.
  std::chrono::milliseconds first_pause{100};
  std::chrono::milliseconds longest_pause{2'000};
};

// Where a stream went on, for people.
struct Resumption {
  std::string address;
  uint64_t num_tokens = 0;  // that the call has by then, of all outputs
  grpc::Status reason;      // how the stream before it ended
};

// Thread safety: every function may be called from any thread.
class ResumingClient {
 public:
  // Each address is HOST:PORT of a replica.
  // REQUIRES: at least one.
  explicit ResumingClient(const std::vector<std::string>& addresses,
                          ResumeOptions options = {});

  // As FlashClient::Generate(), and the events are those of one stream that is
  // never cut, whatever happens between: where a server or a connection is lost
  // or a server stops taking requests, the next of the addresses goes on
  // (after the last, the first), and `on_resumed` is told so. A full queue is
  // tried again when its server says. OK once every output is over.
  //   FAILED_PRECONDITION: a server would go on with other bits; says which.
  //   All else: what the last stream ended with. Errors of the request itself,
  //     a reader that was too slow, and what the caller has ended are never
  //     tried again; neither are servers of which none was ever there.
  grpc::Status Generate(
      const v1::GenerateRequest& request, CancellableCall& call,
      const std::function<void(v1::GenerateEvent&)>& on_event,
      const std::function<void(const Resumption&)>& on_resumed);

  // The server that was asked last, at first the first one.
  FlashClient& server() { return *servers_[current_.load()].client; }

 private:
  class Run;  // one call of Generate()

  struct Server {
    std::string address;
    std::unique_ptr<FlashClient> client;
  };

  const ResumeOptions options_;
  std::vector<Server> servers_;
  std::atomic<size_t> current_{0};
  std::atomic<bool> answered_{false};  // one of them, ever
};

}  // namespace flash

#endif  // CLIENT_RESUMING_CLIENT_H_
