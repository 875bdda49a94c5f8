// Files by their descriptors: whole reads and writes, and errors as statuses.

#ifndef SERVER_SESSIONS_FILE_IO_H_
#define SERVER_SESSIONS_FILE_IO_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace flash {

// Owns a file descriptor. Movable.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// What `error` (an errno) means to whoever called a store: RESOURCE_EXHAUSTED
// if no more can be written, otherwise UNAVAILABLE. `what` begins the message:
// "dir:/var/lib/flash/a/b".
absl::Status FileError(std::string_view what, int error);

// The rest return an errno, or 0.

int WriteAll(int fd, std::string_view bytes);

// Reads as many bytes as `bytes` has, or as there are, and cuts `bytes` to
// those.
int ReadAll(int fd, std::string* bytes);

// Makes what was written to a file, or what was renamed in a directory, outlast
// a loss of power.
int Sync(int fd);

}  // namespace flash

#endif  // SERVER_SESSIONS_FILE_IO_H_
