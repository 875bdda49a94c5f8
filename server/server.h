// The server in one piece: model, tokenizer, engine, gRPC, metrics.

#ifndef SERVER_SERVER_H_
#define SERVER_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/device.h"
#include "server/server_config.h"

namespace flash {

// Thread safety: Create(), Drain() and the destructor from one thread.
class Server {
 public:
  // Loads the model onto `device` and serves. `on_device_failure` is told once,
  // on a thread of the server, if the device fails afterwards: requests have
  // their answers by then, and the process should end. Errors are one sentence
  // for people.
  static absl::StatusOr<std::unique_ptr<Server>> Create(
      const ServerConfig& config, Device device,
      std::function<void(const absl::Status&)> on_device_failure);

  // Ends at once what still runs.
  virtual ~Server() = default;

  // The gRPC server's, as HOST:PORT.
  virtual std::string address() const = 0;

  // What was loaded, and how it runs: one sentence.
  virtual std::string Describe() const = 0;

  // Takes no more requests, lets those that run end, and ends them when the
  // configured time is over. Returns when nothing runs. Health says NOT_SERVING
  // meanwhile, and new calls are told to go elsewhere.
  virtual void Drain() = 0;
};

}  // namespace flash

#endif  // SERVER_SERVER_H_
