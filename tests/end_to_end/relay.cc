#include "tests/end_to_end/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "kernels/check.h"

namespace flash {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

int PortOf(const std::string& target) {
  return std::stoi(target.substr(target.rfind(':') + 1));
}

}  // namespace

Relay::Relay(const std::string& target)
    : target_(target), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  FLASH_CHECK(bind(listener_, any, size) == 0 && listen(listener_, 16) == 0 &&
              getsockname(listener_, any, &size) == 0);
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  accepting_ = std::thread([this] { Accept(); });
}

Relay::~Relay() {
  Cut();
  accepting_.join();
  std::vector<std::thread> passing;
  {
    MutexLock lock(&mutex_);
    passing = std::move(passing_);
  }
  for (std::thread& thread : passing) thread.join();
  MutexLock lock(&mutex_);
  for (const int socket : sockets_) close(socket);
  close(listener_);
}

void Relay::Cut() {
  MutexLock lock(&mutex_);
  cut_ = true;
  shutdown(listener_, SHUT_RDWR);
  for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
}

void Relay::Accept() {
  for (;;) {
    const int client = accept(listener_, nullptr, nullptr);
    if (client < 0) return;
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(PortOf(target_));
    const bool connected =
        connect(server, reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) == 0;
    MutexLock lock(&mutex_);
    sockets_.insert(sockets_.end(), {client, server});
    if (cut_ || !connected) {
      shutdown(client, SHUT_RDWR);
      shutdown(server, SHUT_RDWR);
      continue;
    }
    passing_.emplace_back([=, this] { Pass(client, server, nullptr); });
    passing_.emplace_back([=, this] { Pass(server, client, &swallows_); });
  }
}

void Relay::Pass(int from, int to, const std::atomic<bool>* swallows) {
  char bytes[4096];
  for (;;) {
    const ssize_t size = read(from, bytes, sizeof(bytes));
    if (size <= 0) break;
    if (swallows != nullptr && swallows->load()) continue;
    if (send(to, bytes, size, MSG_NOSIGNAL) != size) break;
  }
  shutdown(from, SHUT_RDWR);
  shutdown(to, SHUT_RDWR);
}

}  // namespace flash
