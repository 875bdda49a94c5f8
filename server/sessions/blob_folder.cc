#include "server/sessions/blob_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace flash {
namespace {

constexpr std::string_view kHeadSuffix = "@head";
constexpr std::string_view kNewPrefix = "@new-";
constexpr size_t kIdDigits = 16;

// Nobody but the server's user reads what others' prompts became.
constexpr mode_t kMode = 0600;

std::string HeadFileName(std::string_view blob) {
  return absl::StrCat(std::string(blob), std::string(kHeadSuffix));
}

std::string BodyFileName(std::string_view blob, uint64_t id) {
  return absl::StrFormat("%s@%016x", std::string(blob), id);
}

std::optional<uint64_t> ParseId(std::string_view text) {
  uint64_t id = 0;
  const bool is_hex = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (text.size() != kIdDigits || !is_hex) return std::nullopt;
  if (!absl::SimpleHexAtoi(std::string(text), &id)) return std::nullopt;
  return id;
}

FileDescriptor OpenToRead(int folder, const std::string& name) {
  return FileDescriptor(
      openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

// 0 if it is not there.
int64_t FileBytes(int folder, const std::string& name) {
  struct stat status;
  const bool ok =
      fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  return ok ? int64_t{status.st_size} : 0;
}

}  // namespace

uint64_t RandomId() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

NewFile::~NewFile() {
  if (!name_.empty()) unlinkat(folder_, name_.c_str(), 0);
}

int NewFile::Sync() { return flash::Sync(file_.get()); }

int NewFile::Rename(const std::string& name) {
  if (renameat(folder_, name_.c_str(), folder_, name.c_str()) != 0) {
    return errno;
  }
  name_.clear();
  return 0;
}

absl::StatusOr<HeadState> BlobFolder::ReadHead(std::string_view blob) const {
  const FileDescriptor file = OpenToRead(folder_.get(), HeadFileName(blob));
  if (!file.is_open() && errno == ENOENT) return HeadState();
  struct stat status;
  if (!file.is_open() || fstat(file.get(), &status) != 0) {
    return FileError(Name(blob), errno);
  }
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  if (const int error = ReadAll(file.get(), &bytes); error != 0) {
    return FileError(Name(blob), error);
  }
  HeadState state;
  state.file_bytes = status.st_size;
  std::optional<HeadFile> head = HeadFile::Decode(bytes);
  state.version = head ? head->version : HeadState::kDamaged;
  if (head) state.head = *std::move(head);
  return state;
}

absl::Time BlobFolder::TimeOfHead(std::string_view blob) const {
  struct stat status;
  if (fstatat(folder_.get(), HeadFileName(blob).c_str(), &status,
              AT_SYMLINK_NOFOLLOW) != 0) {
    return absl::InfiniteFuture();
  }
  return absl::TimeFromTimespec(status.st_mtim);
}

absl::StatusOr<std::optional<std::string>> BlobFolder::ReadBody(
    std::string_view blob, const HeadFile& head) const {
  const FileDescriptor file =
      OpenToRead(folder_.get(), BodyFileName(blob, head.body_id));
  if (!file.is_open() && errno == ENOENT) return std::nullopt;
  struct stat status;
  if (!file.is_open() || fstat(file.get(), &status) != 0) {
    return FileError(Name(blob), errno);
  }
  if (status.st_size != head.body_bytes) {
    return absl::DataLossError(absl::StrCat(Name(blob), ": its body has ",
                                            status.st_size, " bytes, not ",
                                            head.body_bytes));
  }
  std::string bytes(static_cast<size_t>(head.body_bytes), '\0');
  if (const int error = ReadAll(file.get(), &bytes); error != 0) {
    return FileError(Name(blob), error);
  }
  if (Crc32(bytes) != head.body_crc) {
    return absl::DataLossError(
        absl::StrCat(Name(blob), ": its body is not what was written"));
  }
  return bytes;
}

absl::StatusOr<NewFile> BlobFolder::Write(std::string_view bytes) const {
  struct stat status;
  do {
    const std::string name =
        absl::StrFormat("%s%016x", std::string(kNewPrefix), RandomId());
    FileDescriptor descriptor(
        openat(folder_.get(), name.c_str(),
               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kMode));
    if (!descriptor.is_open()) return FileError(what_, errno);
    const int fd = descriptor.get();
    NewFile file(folder_.get(), name, std::move(descriptor));
    if (flock(fd, LOCK_EX) != 0 || fstat(fd, &status) != 0) {
      return FileError(what_, errno);
    }
    // Between the two somebody may have taken it for a leftover.
    if (status.st_nlink == 0) continue;
    const int error = WriteAll(fd, bytes);
    if (error != 0) return FileError(what_, error);
    return file;
  } while (true);
}

absl::Status BlobFolder::Rename(std::string_view blob, uint64_t body_id,
                                std::optional<NewFile>& body,
                                NewFile& head) const {
  const std::string body_name = BodyFileName(blob, body_id);
  int error = body ? body->Rename(body_name) : 0;
  if (error != 0) return FileError(Name(blob), error);
  error = head.Rename(HeadFileName(blob));
  if (error == 0) return absl::OkStatus();
  if (body) unlinkat(folder_.get(), body_name.c_str(), 0);
  return FileError(Name(blob), error);
}

absl::Status BlobFolder::DeleteHead(std::string_view blob) const {
  const std::string file = HeadFileName(blob);
  if (unlinkat(folder_.get(), file.c_str(), 0) == 0) return absl::OkStatus();
  return FileError(Name(blob), errno);
}

int64_t BlobFolder::DeleteBody(std::string_view blob, uint64_t body_id) const {
  const std::string file = BodyFileName(blob, body_id);
  const int64_t bytes = FileBytes(folder_.get(), file);
  const bool deleted = unlinkat(folder_.get(), file.c_str(), 0) == 0;
  return deleted ? bytes : 0;
}

void BlobFolder::DeleteLeftover(const std::string& new_file) const {
  const FileDescriptor file = OpenToRead(folder_.get(), new_file);
  if (!file.is_open()) return;
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) return;
  unlinkat(folder_.get(), new_file.c_str(), 0);
}

absl::StatusOr<BlobFolder::Files> BlobFolder::List() const {
  // A descriptor of its own: reading a directory moves its offset.
  const int fd = openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError(what_, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(fdopendir(fd), closedir);
  Files files;
  errno = 0;
  while (const dirent* entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    const size_t at = name.find('@');
    if (at == std::string_view::npos) continue;
    const std::string_view blob = name.substr(0, at);
    const std::string_view suffix = name.substr(at);
    if (name.starts_with(kNewPrefix)) {
      if (ParseId(name.substr(kNewPrefix.size()))) {
        files.new_files.emplace_back(name);
      }
    } else if (blob.empty()) {
      continue;
    } else if (suffix == kHeadSuffix) {
      files.blobs.emplace_back(blob);
    } else if (const std::optional<uint64_t> id = ParseId(suffix.substr(1))) {
      files.bodies.push_back({std::string(blob), *id});
    }
  }
  if (errno != 0) return FileError(what_, errno);
  return files;
}

absl::StatusOr<int64_t> BlobFolder::CountBytes() const {
  const absl::StatusOr<Files> files = List();
  if (!files.ok()) return files.status();
  int64_t bytes = 0;
  for (const std::string& blob : files->blobs) {
    bytes += FileBytes(folder_.get(), HeadFileName(blob));
  }
  for (const Files::Body& body : files->bodies) {
    bytes += FileBytes(folder_.get(), BodyFileName(body.blob, body.id));
  }
  return bytes;
}

absl::Status BlobFolder::Sync() const {
  const int error = flash::Sync(folder_.get());
  return error == 0 ? absl::OkStatus() : FileError(what_, error);
}

std::string BlobFolder::Name(std::string_view blob) const {
  return absl::StrCat(what_, "/", std::string(blob));
}

}  // namespace flash
