// A real redis-server in a process of its own, on a port of its own.

#ifndef TESTS_SERVER_SESSIONS_REDIS_PROCESS_H_
#define TESTS_SERVER_SESSIONS_REDIS_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/reference/temporary_directory.h"

namespace flash {

// Keeps its data in a file, so that they outlast an outage. Killed when
// destroyed.
class RedisProcess {
 public:
  static bool IsInstalled();

  // Starts it with these further options ("--requirepass", "secret"), and waits
  // until it answers.
  explicit RedisProcess(std::vector<std::string> options = {});
  ~RedisProcess();

  RedisProcess(const RedisProcess&) = delete;
  RedisProcess& operator=(const RedisProcess&) = delete;

  int port() const { return port_; }
  // "redis://127.0.0.1:PORT".
  std::string url() const;

  void Signal(int signal) const;
  // Kills it, and starts it again on the same port.
  void Kill();
  void Start();

 private:
  bool Answers() const;

  TemporaryDirectory directory_;
  const std::vector<std::string> options_;
  int port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace flash

#endif  // TESTS_SERVER_SESSIONS_REDIS_PROCESS_H_
