// The files that sessions are exported to and imported from.

#ifndef CLIENT_SNAPSHOT_FILE_H_
#define CLIENT_SNAPSHOT_FILE_H_

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace flash {

// A file that is there once it is whole, and not before: what is written goes
// into a file beside it, which Commit() puts into its place. "-" is the
// standard output. FAILED_PRECONDITION, with one sentence that names --file, of
// every function: it cannot be written.
//
// Thread safety: one thread at a time.
class SnapshotFile {
 public:
  explicit SnapshotFile(std::string path) : path_(std::move(path)) {}
  // Leaves nothing behind without a Commit().
  ~SnapshotFile();
  SnapshotFile(const SnapshotFile&) = delete;
  SnapshotFile& operator=(const SnapshotFile&) = delete;

  absl::Status Open();
  absl::Status Write(std::string_view bytes);
  // The bytes are on the disk, and then at `path`.
  absl::Status Commit();

 private:
  absl::Status Error(const char* what) const;

  const std::string path_;
  std::string partial_;        // the file beside it; empty: there is none
  std::FILE* file_ = nullptr;  // open iff not null
};

// Reads a file, or the standard input ("-"), piece by piece.
//
// Thread safety: one thread at a time.
class SnapshotSource {
 public:
  explicit SnapshotSource(std::string path) : path_(std::move(path)) {}
  ~SnapshotSource();
  SnapshotSource(const SnapshotSource&) = delete;
  SnapshotSource& operator=(const SnapshotSource&) = delete;

  // FAILED_PRECONDITION, as above.
  absl::Status Open();
  // At most `max_bytes`; empty at the end, and where status() is not OK.
  std::string Next(size_t max_bytes);
  const absl::Status& status() const { return status_; }

 private:
  absl::Status Error() const;

  const std::string path_;
  std::FILE* file_ = nullptr;  // open iff not null
  absl::Status status_;
};

}  // namespace flash

#endif  // CLIENT_SNAPSHOT_FILE_H_
