// One folder of a store that is a directory: which files a blob has in it.
//
//   NAME@head              the head (head_file.h)
//   NAME@0123456789abcdef  a body; NAME's, if NAME@head says so
//   @new-0123456789abcdef  either of them, being written
// '@' is in no blob's name. A body is written and synced under the third name
// and renamed to the second, then the head; renaming that is what changes the
// blob. So a process that dies in the middle leaves at most files that belong
// to no blob.

#ifndef SERVER_SESSIONS_BLOB_FOLDER_H_
#define SERVER_SESSIONS_BLOB_FOLDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/sessions/file_io.h"
#include "server/sessions/head_file.h"

namespace flash {

// What stands at a blob's name.
struct HeadState {
  // 0: nothing. kDamaged: something that cannot be understood.
  int64_t version = 0;
  static constexpr int64_t kDamaged = -1;

  HeadFile head;           // if the version is neither of these
  int64_t file_bytes = 0;  // of the head's file

  bool is_blob() const { return version > 0; }
  bool is_damaged() const { return version == kDamaged; }
  // A blob that has not expired.
  bool is_alive() const { return is_blob() && head.expires > absl::Now(); }
};

// A file under the third name, which goes with this unless it is renamed.
// Movable.
class NewFile {
 public:
  NewFile(int folder, std::string name, FileDescriptor file)
      : folder_(folder), name_(std::move(name)), file_(std::move(file)) {}
  NewFile(NewFile&& other) noexcept
      : folder_(other.folder_),
        name_(std::exchange(other.name_, "")),
        file_(std::move(other.file_)) {}
  ~NewFile();

  // Each returns an errno, or 0.
  int Sync();
  int Rename(const std::string& name);

 private:
  int folder_;
  std::string name_;  // empty: renamed
  // Locked while it is being written, so that nobody takes it for a leftover.
  FileDescriptor file_;
};

uint64_t RandomId();

// Lifetime: the NewFiles of a folder must not outlive it.
//
// Thread safety: as files are. What the functions must be called in the
// directory's lock for is said at each.
class BlobFolder {
 public:
  // The names in a folder, of each kind.
  struct Files {
    struct Body {
      std::string blob;
      uint64_t id = 0;
    };
    std::vector<std::string> blobs;  // those that have a head
    std::vector<Body> bodies;
    std::vector<std::string> new_files;
  };

  // `what` begins the messages: the store and the folder.
  BlobFolder(FileDescriptor folder, std::string what)
      : folder_(std::move(folder)), what_(std::move(what)) {}

  // Without the lock this is one moment's state.
  absl::StatusOr<HeadState> ReadHead(std::string_view blob) const;

  // When the blob's head was written; the infinite future if that cannot be
  // told.
  absl::Time TimeOfHead(std::string_view blob) const;

  // The body that `head` names, or nothing if its file is not there. DATA_LOSS
  // if it is another than was written.
  absl::StatusOr<std::optional<std::string>> ReadBody(
      std::string_view blob, const HeadFile& head) const;

  // Writes a file that belongs to no blob yet, and that is not synced either.
  absl::StatusOr<NewFile> Write(std::string_view bytes) const;

  // Makes `body`, if there is one, and `head` those of the blob, or changes
  // nothing. REQUIRES: the lock; they are synced.
  absl::Status Rename(std::string_view blob, uint64_t body_id,
                      std::optional<NewFile>& body, NewFile& head) const;

  // Deletes files of a blob. REQUIRES: the lock, so that the bytes in the
  // directory are counted once.
  absl::Status DeleteHead(std::string_view blob) const;
  // Returns the bytes deleted: 0 if it is not there.
  int64_t DeleteBody(std::string_view blob, uint64_t body_id) const;

  // Deletes a NewFile that nobody writes any more.
  void DeleteLeftover(const std::string& new_file) const;

  absl::StatusOr<Files> List() const;

  // The bytes of all heads and bodies.
  absl::StatusOr<int64_t> CountBytes() const;

  // Makes what was renamed or deleted outlast a loss of power.
  absl::Status Sync() const;

  // Names the store and the blob in a message.
  std::string Name(std::string_view blob) const;

 private:
  FileDescriptor folder_;
  std::string what_;
};

}  // namespace flash

#endif  // SERVER_SESSIONS_BLOB_FOLDER_H_
