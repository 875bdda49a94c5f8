#include "tests/server/sessions/redis_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "kernels/check.h"

namespace flash {
namespace {

constexpr char kProgram[] = "/usr/bin/redis-server";

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A port that nobody listens on.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  FLASH_CHECK(bind(fd, generic, size) == 0);
  FLASH_CHECK(getsockname(fd, generic, &size) == 0);
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace

bool RedisProcess::IsInstalled() { return access(kProgram, X_OK) == 0; }

RedisProcess::RedisProcess(std::vector<std::string> options)
    : options_(std::move(options)), port_(FreePort()) {
  Start();
}

RedisProcess::~RedisProcess() { Kill(); }

std::string RedisProcess::url() const {
  return "redis://127.0.0.1:" + std::to_string(port_);
}

void RedisProcess::Signal(int signal) const { kill(pid_, signal); }

void RedisProcess::Kill() {
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void RedisProcess::Start() {
  std::vector<std::string> arguments = {kProgram,
                                        "--bind",
                                        "127.0.0.1",
                                        "--port",
                                        std::to_string(port_),
                                        "--dir",
                                        directory_.path(),
                                        "--logfile",
                                        "log",
                                        "--save",
                                        "",
                                        "--appendonly",
                                        "yes",
                                        "--appendfsync",
                                        "no"};
  arguments.insert(arguments.end(), options_.begin(), options_.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = fork();
  FLASH_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(argv[0], argv.data());
    _exit(127);
  }
  while (!Answers()) {
    FLASH_CHECK(waitpid(pid_, nullptr, WNOHANG) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Also without a password it answers that it wants one; while it loads its data
// it says -LOADING.
bool RedisProcess::Answers() const {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port_);
  char answer[64] = {};
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) == 0;
  const bool answered = connected &&
                        send(fd, "PING\r\n", 6, MSG_NOSIGNAL) == 6 &&
                        recv(fd, answer, sizeof(answer) - 1, 0) > 0;
  close(fd);
  return answered && !std::string_view(answer).starts_with("-LOADING");
}

}  // namespace flash
