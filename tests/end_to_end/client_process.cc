#include "tests/end_to_end/client_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

#include "kernels/check.h"

namespace flash {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Redirect(const std::string& path, int flags, int descriptor) {
  dup2(open(path.c_str(), flags, 0600), descriptor);
}

}  // namespace

ClientProcess::ClientProcess(const std::vector<std::string>& arguments,
                             const std::string& input) {
  directory_.Write("stdin", input);
  std::vector<std::string> words = {FLASH_BINARY_DIR "/bin/flash-client"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string& at = directory_.path();
  pid_ = fork();
  FLASH_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    Redirect(at + "/stdin", O_RDONLY, STDIN_FILENO);
    Redirect(at + "/stdout", O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
    Redirect(at + "/stderr", O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
}

ClientProcess::~ClientProcess() {
  if (exit_code_ >= 0) return;
  Signal(SIGKILL);
  Wait();
}

void ClientProcess::Signal(int signal) const { kill(pid_, signal); }

bool ClientProcess::WaitForOutput(size_t num_bytes) {
  while (Output().size() < num_bytes) {
    int status = 0;
    if (exit_code_ >= 0) return false;
    if (waitpid(pid_, &status, WNOHANG) == pid_) exit_code_ = ExitCode(status);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

int ClientProcess::Wait() {
  if (exit_code_ < 0) {
    int status = 0;
    FLASH_CHECK(waitpid(pid_, &status, 0) == pid_);
    exit_code_ = ExitCode(status);
  }
  return exit_code_;
}

std::string ClientProcess::Output() const {
  return ReadAll(directory_.path() + "/stdout");
}

std::string ClientProcess::Errors() const {
  return ReadAll(directory_.path() + "/stderr");
}

}  // namespace flash
