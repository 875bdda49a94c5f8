// What lets one writer at a time change a directory, of all threads of all
// processes, and what they all must know: how many bytes are in it.

#ifndef SERVER_SESSIONS_DIRECTORY_LOCK_H_
#define SERVER_SESSIONS_DIRECTORY_LOCK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/mutex.h"
#include "server/sessions/file_io.h"

namespace flash {

// An flock() on a file of the directory, which ends with the process that holds
// it. The file's only contents are the count of bytes, which a process that
// dies in the middle of a change may leave wrong: whoever opens the directory
// next counts them again.
//
// Thread safety: every function may be called from any thread.
class DirectoryLock {
 public:
  // Of the directory whose descriptor that is; `store` is for messages.
  // UNAVAILABLE if the file can neither be opened nor made.
  static absl::StatusOr<std::unique_ptr<DirectoryLock>> Open(int directory,
                                                             std::string store);

  // Holds the lock for as long as it lives. Movable.
  class Held {
   public:
    explicit Held(DirectoryLock* lock) : lock_(lock) {}
    Held(Held&& other) noexcept : lock_(std::exchange(other.lock_, nullptr)) {}
    ~Held() {
      if (lock_ != nullptr) lock_->Unlock();
    }

   private:
    DirectoryLock* lock_;
  };

  // Waits for its turn. UNAVAILABLE if that takes seconds, since then another
  // process has stopped while it held the lock; or if the file is gone.
  absl::StatusOr<Held> Lock();

  // UNAVAILABLE if the file is gone, and with it, most likely, the directory:
  // then it says nothing that a blob is not there.
  absl::Status CheckExists() const;

  // The bytes in the directory. REQUIRES, to change them: the lock is held.
  int64_t num_bytes() const;
  void set_num_bytes(int64_t num_bytes);

 private:
  DirectoryLock(FileDescriptor file, std::string store)
      : file_(std::move(file)), store_(std::move(store)) {}

  void Unlock();

  const FileDescriptor file_;
  const std::string store_;

  Mutex mutex_;
  CondVar given_back_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;  // by a thread of this object
};

}  // namespace flash

#endif  // SERVER_SESSIONS_DIRECTORY_LOCK_H_
