// flash-client in a process of its own.

#ifndef TESTS_END_TO_END_CLIENT_PROCESS_H_
#define TESTS_END_TO_END_CLIENT_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/reference/temporary_directory.h"

namespace flash {

// Killed when destroyed, if it still runs.
class ClientProcess {
 public:
  // Starts `flash-client ARGUMENTS...`, whose standard input is `input`.
  explicit ClientProcess(const std::vector<std::string>& arguments,
                         const std::string& input = "");
  ~ClientProcess();

  ClientProcess(const ClientProcess&) = delete;
  ClientProcess& operator=(const ClientProcess&) = delete;

  void Signal(int signal) const;

  // Waits until this many bytes have been written to stdout; false if it has
  // ended before.
  bool WaitForOutput(size_t num_bytes);

  // Waits for its end and returns the exit code, or 128 + the signal that ended
  // it.
  int Wait();

  // What it has written so far.
  std::string Output() const;
  std::string Errors() const;

 private:
  TemporaryDirectory directory_;
  pid_t pid_ = -1;
  int exit_code_ = -1;  // known once it has ended
};

}  // namespace flash

#endif  // TESTS_END_TO_END_CLIENT_PROCESS_H_
