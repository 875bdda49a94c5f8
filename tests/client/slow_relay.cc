#include "tests/client/slow_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

#include "kernels/check.h"

namespace flash {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Passes on what has come; false at the end.
bool Pass(int from, int to) {
  char bytes[4096];
  const ssize_t count = read(from, bytes, sizeof(bytes));
  return count > 0 && send(to, bytes, count, MSG_NOSIGNAL) == count;
}

}  // namespace

SlowRelay::SlowRelay(const std::string& server, std::chrono::milliseconds delay)
    : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  FLASH_CHECK(bind(listener_, raw, size) == 0 && listen(listener_, 1) == 0 &&
              getsockname(listener_, raw, &size) == 0);
  port_ = ntohs(address.sin_port);
  const int server_port = std::stoi(server.substr(server.rfind(':') + 1));
  thread_ = std::thread(&SlowRelay::Run, this, server_port, delay);
}

SlowRelay::~SlowRelay() {
  shutdown(listener_, SHUT_RDWR);  // ends accept()
  thread_.join();
  close(listener_);
}

std::string SlowRelay::address() const {
  return "127.0.0.1:" + std::to_string(port_);
}

void SlowRelay::Run(int server_port, std::chrono::milliseconds delay) {
  const int client = accept(listener_, nullptr, nullptr);
  if (client < 0) return;
  std::this_thread::sleep_for(delay);
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(server_port);
  bool goes = connect(server, reinterpret_cast<const sockaddr*>(&address),
                      sizeof(address)) == 0;
  pollfd ends[] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
  while (goes && poll(ends, 2, -1) > 0) {
    if (ends[0].revents != 0) goes = Pass(client, server);
    if (goes && ends[1].revents != 0) goes = Pass(server, client);
  }
  close(server);
  close(client);
}

}  // namespace flash
