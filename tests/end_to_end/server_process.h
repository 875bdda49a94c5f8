// A real flash-server in a process of its own, on a port of its own.

#ifndef TESTS_END_TO_END_SERVER_PROCESS_H_
#define TESTS_END_TO_END_SERVER_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/reference/temporary_directory.h"

namespace flash {

// Killed when destroyed, if it still runs.
class ServerProcess {
 public:
  // Starts flash-server, or another program that serves, with these flags;
  // --listen and --port_file are added.
  explicit ServerProcess(const std::vector<std::string>& flags,
                         const std::string& program = "flash-server");
  ~ServerProcess();

  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Waits until it serves; false if it has ended instead.
  bool WaitUntilServing();

  const std::string& address() const { return address_; }

  void Signal(int signal) const;

  // Waits for its end and returns the exit code, or 128 + the signal that ended
  // it.
  int Wait();

  // What it has written to stderr so far.
  std::string Errors() const;

  // Bytes that are resident.
  int64_t ResidentBytes() const;

 private:
  bool HasEnded();

  TemporaryDirectory directory_;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
  std::string address_;
};

}  // namespace flash

#endif  // TESTS_END_TO_END_SERVER_PROCESS_H_
