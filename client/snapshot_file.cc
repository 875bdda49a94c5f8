#include "client/snapshot_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace flash {

SnapshotFile::~SnapshotFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  if (!partial_.empty()) unlink(partial_.c_str());
}

absl::Status SnapshotFile::Open() {
  if (path_ == "-") {
    file_ = stdout;
    return absl::OkStatus();
  }
  const std::string partial = absl::StrCat(path_, ".partial-", getpid());
  const int descriptor =
      open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return Error("cannot be written");
  partial_ = partial;
  file_ = fdopen(descriptor, "wb");
  if (file_ != nullptr) return absl::OkStatus();
  close(descriptor);
  return Error("cannot be written");
}

absl::Status SnapshotFile::Write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size()) {
    return absl::OkStatus();
  }
  return Error("cannot be written");
}

absl::Status SnapshotFile::Commit() {
  if (std::fflush(file_) != 0) return Error("cannot be written");
  if (file_ == stdout) return absl::OkStatus();
  const bool synced = fsync(fileno(file_)) == 0;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!synced || !closed) return Error("cannot be written");
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) {
    return Error("cannot be replaced");
  }
  partial_.clear();
  return absl::OkStatus();
}

absl::Status SnapshotFile::Error(const char* what) const {
  return absl::FailedPreconditionError(absl::StrCat(
      "--file is \"", path_, "\", which ", what, ": ", std::strerror(errno)));
}

SnapshotSource::~SnapshotSource() {
  if (file_ != nullptr && file_ != stdin) std::fclose(file_);
}

absl::Status SnapshotSource::Open() {
  file_ = path_ == "-" ? stdin : std::fopen(path_.c_str(), "rbe");
  return file_ != nullptr ? absl::OkStatus() : Error();
}

std::string SnapshotSource::Next(size_t max_bytes) {
  std::string bytes(max_bytes, '\0');
  bytes.resize(std::fread(bytes.data(), 1, max_bytes, file_));
  if (std::ferror(file_) == 0) return bytes;
  status_ = Error();
  return "";
}

absl::Status SnapshotSource::Error() const {
  return absl::FailedPreconditionError(
      absl::StrCat("--file is \"", path_,
                   "\", which cannot be read: ", std::strerror(errno)));
}

}  // namespace flash
