// A server in this process that gives right answers, and breaks off as a test
// has told it to.

#ifndef TESTS_CLIENT_SCRIPTED_SERVER_H_
#define TESTS_CLIENT_SCRIPTED_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "flash/v1/control.grpc.pb.h"
#include "flash/v1/inference.grpc.pb.h"
#include "flash/v1/sessions.grpc.pb.h"
#include "kernels/mutex.h"

namespace flash {

// How one Generate call goes. By default to its end.
struct Script {
  // Ends with `status` before this event, `accepted` being event 0.
  std::optional<int> cut_before = {};
  grpc::Status status = {};
  bool drops = false;  // the connection, instead of a status
  // Tokens that each output is sent again, though they were prior.
  int num_repeated = 0;
  // Of each output's first new token the text begins so many bytes earlier,
  // or a few more: it is whole characters.
  size_t num_repeated_bytes = 0;
  uint64_t seed_shift = 0;  // 0: the right answer
  uint64_t session_epoch = 0;
};

// The events of one stream that is never cut: a function of the request.
std::vector<v1::GenerateEvent> RightAnswer(const v1::GenerateRequest& request,
                                           const Script& script = {});

// A status with the details that a flash-server's has.
grpc::Status ServerError(grpc::StatusCode code, const std::string& reason,
                         int retry_ms = 0);

// Thread safety: every function may be called from any thread.
class ScriptedServer {
 public:
  ScriptedServer();
  ~ScriptedServer() { Stop(); }

  const std::string& address() const { return address_; }

  // The scripts of the next calls, in order; after them all is well.
  void Play(std::deque<Script> scripts);
  void SetNumerics(const std::string& numerics);
  void Stop();

  // What Generate was called with.
  std::vector<v1::GenerateRequest> requests() const;
  // The sessions' bytes, for Export and Import.
  std::map<std::string, std::string>& snapshots() { return snapshots_; }
  size_t largest_chunk() const { return largest_chunk_; }

 private:
  class Inference;
  class Control;
  class Sessions;

  mutable Mutex mutex_;
  std::deque<Script> scripts_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::GenerateRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::string numerics_ ABSL_GUARDED_BY(mutex_) = "numbers";
  std::map<std::string, std::string> snapshots_;
  size_t largest_chunk_ = 0;

  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace flash

#endif  // TESTS_CLIENT_SCRIPTED_SERVER_H_
