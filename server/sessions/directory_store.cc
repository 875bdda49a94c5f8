#include "server/sessions/directory_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/sessions/blob_name.h"
#include "server/sessions/body.h"
#include "server/sessions/store_errors.h"

namespace flash {
namespace {

constexpr mode_t kMode = 0700;

FileDescriptor OpenDirectory(int parent, const std::string& name,
                             int more_flags) {
  return FileDescriptor(openat(
      parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | more_flags));
}

// The version that callers know: 0 if there is nothing for them.
int64_t Version(const HeadState& state) {
  return state.is_alive() ? state.version : 0;
}

// Greater than all that the blob had, also before it was deleted: nobody
// changes one a million times a second.
int64_t NextVersion(const HeadState& state) {
  return std::max(state.version + 1, absl::ToUnixMicros(absl::Now()));
}

absl::Status Damaged(const std::string& name) {
  return absl::DataLossError(absl::StrCat(name, ": its head is damaged"));
}

absl::Status CheckExpected(const std::string& name, const HeadState& state,
                           std::optional<int64_t> expected) {
  if (!expected) return absl::OkStatus();
  if (state.is_damaged()) return Damaged(name);
  if (*expected == Version(state)) return absl::OkStatus();
  return OtherVersion(name, *expected, Version(state));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DirectoryStore>> DirectoryStore::Open(
    const std::string& path, int64_t max_bytes,
    std::function<void(const std::string&)> on_damage) {
  const std::string description = "dir:" + path;
  if (mkdir(path.c_str(), kMode) != 0 && errno != EEXIST) {
    return FileError(description, errno);
  }
  FileDescriptor root = OpenDirectory(AT_FDCWD, path, 0);
  if (!root.is_open()) return FileError(description, errno);
  absl::StatusOr<std::unique_ptr<DirectoryLock>> lock =
      DirectoryLock::Open(root.get(), description);
  if (!lock.ok()) return lock.status();
  std::unique_ptr<DirectoryStore> store(
      new DirectoryStore(description, max_bytes, std::move(on_damage),
                         std::move(root), *std::move(lock)));
  if (absl::Status status = store->Sweep(); !status.ok()) return status;
  if (absl::Status status = store->Count(); !status.ok()) return status;
  return store;
}

absl::StatusOr<BlobStore::Found> DirectoryStore::Get(std::string_view name) {
  const absl::StatusOr<Place> place = Find(name, IfMissing::kFail);
  if (!place.ok()) return place.status();
  std::optional<uint64_t> missing;
  while (true) {
    absl::StatusOr<HeadState> state = ReadBlob(*place);
    if (!state.ok()) return state.status();
    HeadFile& head = state->head;
    absl::StatusOr<std::optional<std::string>> body =
        place->folder.ReadBody(place->blob, head);
    if (!body.ok()) return body.status();
    if (*body) {
      return Found{{std::move(head.head), MakeBody(**std::move(body))},
                   state->version};
    }
    // Replaced between the two reads; unless the head still says so.
    if (missing == head.body_id) {
      return absl::DataLossError(absl::StrCat(place->folder.Name(place->blob),
                                              ": its body is missing"));
    }
    missing = head.body_id;
  }
}

absl::StatusOr<BlobStore::Head> DirectoryStore::GetHead(std::string_view name) {
  const absl::StatusOr<Place> place = Find(name, IfMissing::kFail);
  if (!place.ok()) return place.status();
  absl::StatusOr<HeadState> state = ReadBlob(*place);
  if (!state.ok()) return state.status();
  return Head{std::move(state->head.head), state->version,
              state->head.body_bytes};
}

absl::StatusOr<int64_t> DirectoryStore::Put(std::string_view name,
                                            const Blob& blob,
                                            std::optional<int64_t> expected,
                                            absl::Time expires) {
  const absl::StatusOr<Place> place = Find(name, IfMissing::kMake);
  if (!place.ok()) return place.status();
  absl::StatusOr<HeadState> before = place->folder.ReadHead(place->blob);
  if (!before.ok()) return before.status();
  absl::Status status = CheckExpected(std::string(name), *before, expected);
  const auto body_bytes = static_cast<int64_t>(blob.body->size());
  // Replace() decides, but should not have to refuse what can be refused now.
  if (status.ok()) status = CheckRoom(body_bytes - before->head.body_bytes);
  if (!status.ok()) return status;

  absl::StatusOr<NewFile> written = place->folder.Write(*blob.body);
  if (!written.ok()) return written.status();
  std::optional<NewFile> body(*std::move(written));
  HeadFile next{0,          expires,           RandomId(),
                body_bytes, Crc32(*blob.body), blob.head};
  while (true) {
    next.version = NextVersion(*before);
    status = Replace(*place, *before, next, body);
    if (status.ok()) return next.version;
    // Somebody was faster, which only matters if it was said what is expected.
    if (!absl::IsAborted(status) || expected) return status;
    before = place->folder.ReadHead(place->blob);
    if (!before.ok()) return before.status();
  }
}

absl::StatusOr<int64_t> DirectoryStore::PutHead(std::string_view name,
                                                std::string_view head,
                                                int64_t expected,
                                                absl::Time expires) {
  const absl::StatusOr<Place> place = Find(name, IfMissing::kFail);
  if (!place.ok()) return place.status();
  const absl::StatusOr<HeadState> before = ReadBlob(*place);
  if (!before.ok()) return before.status();
  absl::Status status = CheckExpected(std::string(name), *before, expected);
  if (!status.ok()) return status;
  HeadFile next = before->head;
  next.version = NextVersion(*before);
  next.expires = expires;
  next.head = head;
  std::optional<NewFile> same_body;
  status = Replace(*place, *before, next, same_body);
  if (!status.ok()) return status;
  return next.version;
}

absl::Status DirectoryStore::Delete(std::string_view name,
                                    std::optional<int64_t> expected) {
  const absl::StatusOr<Place> place = Find(name, IfMissing::kFail);
  if (!place.ok()) return place.status();
  absl::Status status;
  do {
    const absl::StatusOr<HeadState> before =
        place->folder.ReadHead(place->blob);
    if (!before.ok()) return before.status();
    if (!before->is_damaged() && !before->is_alive()) {
      return NoSuchBlob(name);
    }
    status = CheckExpected(std::string(name), *before, expected);
    if (status.ok()) status = Remove(*place, *before);
  } while (absl::IsAborted(status) && !expected);
  return status;
}

absl::StatusOr<BlobStore::Page> DirectoryStore::List(std::string_view folder,
                                                     std::string_view from,
                                                     int limit) {
  if (absl::Status status = CheckFolderName(folder); !status.ok()) {
    return status;
  }
  const std::string prefix = std::string(folder) + "/";
  if (!from.empty() && !from.starts_with(prefix)) return NoSuchPage(from);
  const absl::StatusOr<BlobFolder> opened = OpenFolder(std::string(folder));
  if (absl::IsNotFound(opened.status())) return Page();
  if (!opened.ok()) return opened.status();
  absl::StatusOr<BlobFolder::Files> files = opened->List();
  if (!files.ok()) return files.status();

  std::vector<std::string>& blobs = files->blobs;
  std::sort(blobs.begin(), blobs.end());
  auto blob = blobs.begin();
  if (!from.empty()) {
    blob = std::lower_bound(blob, blobs.end(), from.substr(prefix.size()));
  }
  Page page;
  for (; blob != blobs.end(); ++blob) {
    if (static_cast<int>(page.entries.size()) >= limit) {
      page.next = prefix + *blob;
      break;
    }
    absl::StatusOr<HeadState> state = opened->ReadHead(*blob);
    if (!state.ok() || !state->is_alive()) continue;
    page.entries.push_back({prefix + *blob,
                            {std::move(state->head.head), state->version,
                             state->head.body_bytes}});
  }
  return page;
}

absl::StatusOr<DirectoryStore::Place> DirectoryStore::Find(
    std::string_view name, IfMissing if_missing) {
  if (absl::Status status = CheckBlobName(name); !status.ok()) return status;
  const size_t slash = name.find('/');
  const bool has_folder = slash != std::string_view::npos;
  const std::string folder(has_folder ? name.substr(0, slash) : "");
  const std::string blob(has_folder ? name.substr(slash + 1) : name);
  absl::StatusOr<BlobFolder> opened = OpenFolder(folder);
  if (absl::IsNotFound(opened.status()) && if_missing == IfMissing::kMake) {
    const int made = mkdirat(root_.get(), folder.c_str(), kMode);
    if (made != 0 && errno != EEXIST) return FileError(description_, errno);
    if (const int error = Sync(root_.get()); error != 0) {
      return FileError(description_, error);
    }
    opened = OpenFolder(folder);
  }
  if (absl::IsNotFound(opened.status())) return NoSuchBlob(name);
  if (!opened.ok()) return opened.status();
  return Place{*std::move(opened), blob};
}

absl::StatusOr<BlobFolder> DirectoryStore::OpenFolder(
    const std::string& folder) {
  if (absl::Status status = lock_->CheckExists(); !status.ok()) return status;
  FileDescriptor opened =
      OpenDirectory(root_.get(), folder.empty() ? "." : folder, O_NOFOLLOW);
  const int error = errno;
  std::string what =
      folder.empty() ? description_ : absl::StrCat(description_, "/", folder);
  if (opened.is_open()) return BlobFolder(std::move(opened), std::move(what));
  if (error == ENOENT) return absl::NotFoundError(what);
  return FileError(what, error);
}

absl::StatusOr<std::vector<std::string>> DirectoryStore::FolderNames() {
  const int fd = openat(root_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError(description_, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(fdopendir(fd), closedir);
  std::vector<std::string> names = {""};
  while (const dirent* entry = readdir(directory.get())) {
    struct stat status;
    if (!CheckFolderName(entry->d_name).ok()) continue;
    if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISDIR(status.st_mode)) names.push_back(entry->d_name);
  }
  return names;
}

absl::StatusOr<HeadState> DirectoryStore::ReadBlob(const Place& place) {
  absl::StatusOr<HeadState> state = place.folder.ReadHead(place.blob);
  if (!state.ok()) return state.status();
  const std::string name = place.folder.Name(place.blob);
  if (state->is_damaged()) return Damaged(name);
  if (!state->is_alive()) return NoSuchBlob(name);
  return state;
}

absl::Status DirectoryStore::Replace(const Place& place,
                                     const HeadState& before,
                                     const HeadFile& next,
                                     std::optional<NewFile>& body) {
  const std::string bytes = next.Encode();
  absl::StatusOr<NewFile> head = place.folder.Write(bytes);
  if (!head.ok()) return head.status();
  // After both are written: where a file system has a journal, it is then
  // written once.
  int error = body ? body->Sync() : 0;
  if (error == 0) error = head->Sync();
  if (error != 0) return FileError(place.folder.Name(place.blob), error);
  {
    const absl::StatusOr<DirectoryLock::Held> held = lock_->Lock();
    if (!held.ok()) return held.status();
    absl::Status status = CheckUnchanged(place, before);
    int64_t added = static_cast<int64_t>(bytes.size()) - before.file_bytes;
    if (body) added += next.body_bytes;
    if (status.ok() && body) status = CheckRoom(added - before.head.body_bytes);
    if (status.ok()) {
      status = place.folder.Rename(place.blob, next.body_id, body, *head);
    }
    if (!status.ok()) return status;
    if (body) {
      added -= place.folder.DeleteBody(place.blob, before.head.body_id);
    }
    lock_->set_num_bytes(lock_->num_bytes() + added);
  }
  return place.folder.Sync();
}

absl::Status DirectoryStore::Remove(const Place& place,
                                    const HeadState& before) {
  {
    const absl::StatusOr<DirectoryLock::Held> held = lock_->Lock();
    if (!held.ok()) return held.status();
    absl::Status status = CheckUnchanged(place, before);
    if (status.ok()) status = place.folder.DeleteHead(place.blob);
    if (!status.ok()) return status;
    const int64_t body_bytes =
        place.folder.DeleteBody(place.blob, before.head.body_id);
    lock_->set_num_bytes(lock_->num_bytes() - before.file_bytes - body_bytes);
  }
  return place.folder.Sync();
}

absl::Status DirectoryStore::CheckUnchanged(const Place& place,
                                            const HeadState& before) {
  const absl::StatusOr<HeadState> now = place.folder.ReadHead(place.blob);
  if (!now.ok()) return now.status();
  if (now->version == before.version) return absl::OkStatus();
  return OtherVersion(place.folder.Name(place.blob), Version(before),
                      Version(*now));
}

absl::Status DirectoryStore::CheckRoom(int64_t added_bytes) const {
  const int64_t bytes = lock_->num_bytes();
  if (added_bytes <= 0 || added_bytes <= max_bytes_ - bytes) {
    return absl::OkStatus();
  }
  return StoreIsFull(description_, max_bytes_, bytes, added_bytes);
}

}  // namespace flash
