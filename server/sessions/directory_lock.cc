#include "server/sessions/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"

namespace flash {
namespace {

// No blob's name has '@' in it.
constexpr char kFileName[] = "@lock";

// A change is a few system calls, and none of them waits for the disk. So this
// is ages, and yet less than a caller's patience.
constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kBetweenTries = std::chrono::milliseconds(1);

using Clock = std::chrono::steady_clock;

}  // namespace

absl::StatusOr<std::unique_ptr<DirectoryLock>> DirectoryLock::Open(
    int directory, std::string store) {
  FileDescriptor file(openat(directory, kFileName,
                             O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) {
    return FileError(absl::StrCat(store, "/", kFileName), errno);
  }
  return std::unique_ptr<DirectoryLock>(
      new DirectoryLock(std::move(file), std::move(store)));
}

absl::StatusOr<DirectoryLock::Held> DirectoryLock::Lock() {
  const Clock::time_point deadline = Clock::now() + kPatience;
  {
    MutexLock lock(&mutex_);
    while (held_ && Clock::now() < deadline) {
      given_back_.WaitUntil(&mutex_, deadline);
    }
    if (held_) {
      return absl::UnavailableError(
          absl::StrCat(store_, ": too many changes wait for each other"));
    }
    held_ = true;
  }
  Held held(this);
  while (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error != EWOULDBLOCK && error != EINTR) {
      return FileError(absl::StrCat(store_, ": locking"), error);
    }
    if (Clock::now() >= deadline) {
      return absl::UnavailableError(
          absl::StrCat(store_, ": another process holds its lock"));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  if (absl::Status status = CheckExists(); !status.ok()) return status;
  return held;
}

absl::Status DirectoryLock::CheckExists() const {
  struct stat status;
  if (fstat(file_.get(), &status) == 0 && status.st_nlink > 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat(store_, " is gone: somebody deleted it"));
}

int64_t DirectoryLock::num_bytes() const {
  int64_t num_bytes = 0;
  // An empty file has counted none.
  const ssize_t got = pread(file_.get(), &num_bytes, sizeof(num_bytes), 0);
  return got == sizeof(num_bytes) ? num_bytes : 0;
}

void DirectoryLock::set_num_bytes(int64_t num_bytes) {
  // It is on the disk already, so that this can hardly fail; and the next one
  // to open the directory counts again.
  static_cast<void>(pwrite(file_.get(), &num_bytes, sizeof(num_bytes), 0) == 0);
}

void DirectoryLock::Unlock() {
  flock(file_.get(), LOCK_UN);
  MutexLock lock(&mutex_);
  held_ = false;
  given_back_.NotifyOne();
}

}  // namespace flash
