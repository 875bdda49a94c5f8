// A network between client and server that takes its time.

#ifndef TESTS_CLIENT_SLOW_RELAY_H_
#define TESTS_CLIENT_SLOW_RELAY_H_

#include <chrono>
#include <string>
#include <thread>

namespace flash {

// Passes one connection on to a server, both ways, once `delay` is over. Until
// then it is open, and nothing comes back.
class SlowRelay {
 public:
  // `server`: 127.0.0.1:PORT.
  SlowRelay(const std::string& server, std::chrono::milliseconds delay);
  ~SlowRelay();

  SlowRelay(const SlowRelay&) = delete;
  SlowRelay& operator=(const SlowRelay&) = delete;

  std::string address() const;

 private:
  void Run(int server_port, std::chrono::milliseconds delay);

  const int listener_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace flash

#endif  // TESTS_CLIENT_SLOW_RELAY_H_
