#include "tests/end_to_end/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <thread>

#include "kernels/check.h"

namespace flash {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ServerProcess::ServerProcess(const std::vector<std::string>& flags,
                             const std::string& program) {
  std::vector<std::string> arguments = {
      FLASH_BINARY_DIR "/bin/" + program, "--listen=127.0.0.1:0",
      "--metrics_listen=", "--port_file=" + directory_.path() + "/port"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string errors = directory_.path() + "/stderr";
  pid_ = fork();
  FLASH_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    // A test that crashes leaves no server behind, for which ctest would wait.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int file = open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
}

ServerProcess::~ServerProcess() {
  if (HasEnded()) return;
  Signal(SIGKILL);
  Wait();
}

bool ServerProcess::HasEnded() {
  if (exit_code_.has_value()) return true;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) exit_code_ = ExitCode(status);
  return exit_code_.has_value();
}

bool ServerProcess::WaitUntilServing() {
  while (!HasEnded()) {
    address_ = ReadAll(directory_.path() + "/port");
    if (!address_.empty() && address_.back() == '\n') {
      address_.pop_back();
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

void ServerProcess::Signal(int signal) const { kill(pid_, signal); }

int ServerProcess::Wait() {
  if (!exit_code_.has_value()) {
    int status = 0;
    FLASH_CHECK(waitpid(pid_, &status, 0) == pid_);
    exit_code_ = ExitCode(status);
  }
  return *exit_code_;
}

std::string ServerProcess::Errors() const {
  return ReadAll(directory_.path() + "/stderr");
}

int64_t ServerProcess::ResidentBytes() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  int64_t all = 0;
  int64_t resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace flash
