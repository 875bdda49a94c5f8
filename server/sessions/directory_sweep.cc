// What nobody needs in a directory any more, and what nobody can read: the
// second half of DirectoryStore.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/sessions/directory_store.h"

namespace flash {
namespace {

// Longer than a session lives unless it is used, and a use writes its head.
constexpr absl::Duration kKeepDamaged = absl::Hours(24 * 31);

bool IsOld(absl::Time written) { return written < absl::Now() - kKeepDamaged; }

}  // namespace

absl::Status DirectoryStore::Sweep() {
  const absl::StatusOr<std::vector<std::string>> folders = FolderNames();
  if (!folders.ok()) return folders.status();
  absl::Status status;
  Damage damage;
  for (const std::string& folder : *folders) {
    status.Update(SweepFolder(folder, damage));
  }
  const int64_t before = num_damaged_.exchange(damage.count);
  if (damage.count > before && on_damage_) {
    on_damage_(absl::StrCat(
        damage.count, " blobs of ", description_,
        " cannot be read and are passed over; the first is ", damage.first));
  }
  return status;
}

absl::Status DirectoryStore::SweepFolder(const std::string& folder,
                                         Damage& damage) {
  absl::StatusOr<BlobFolder> opened = OpenFolder(folder);
  if (!opened.ok()) return opened.status();
  const absl::StatusOr<BlobFolder::Files> files = opened->List();
  if (!files.ok()) return files.status();
  Place place{*std::move(opened), ""};
  for (const std::string& file : files->new_files) {
    place.folder.DeleteLeftover(file);
  }
  absl::Status status;
  std::map<std::string, uint64_t> body_ids;  // as the heads say
  std::set<std::string> unreadable;
  for (const std::string& blob : files->blobs) {
    place.blob = blob;
    const absl::StatusOr<HeadState> state = place.folder.ReadHead(blob);
    if (!state.ok()) unreadable.insert(blob);
    if (!state.ok() || state->is_damaged()) {
      if (state.ok() && IsOld(place.folder.TimeOfHead(blob))) {
        status.Update(RemoveDamaged(place));
      } else if (++damage.count == 1) {
        damage.first = state.ok() ? absl::StrCat(place.folder.Name(blob),
                                                 ": its head is damaged")
                                  : std::string(state.status().message());
      }
      continue;
    }
    if (!state->is_blob()) continue;
    body_ids[blob] = state->head.body_id;
    if (state->is_alive()) continue;
    const absl::Status removed = Remove(place, *state);
    if (!absl::IsAborted(removed)) status.Update(removed);  // it lives again
  }
  for (const BlobFolder::Files::Body& body : files->bodies) {
    const auto head = body_ids.find(body.blob);
    if (head != body_ids.end() && head->second == body.id) continue;
    if (unreadable.contains(body.blob)) continue;
    place.blob = body.blob;
    status.Update(RemoveOrphan(place, body.id));
  }
  return status;
}

absl::Status DirectoryStore::RemoveDamaged(const Place& place) {
  const absl::StatusOr<DirectoryLock::Held> held = lock_->Lock();
  if (!held.ok()) return held.status();
  const absl::StatusOr<HeadState> state = place.folder.ReadHead(place.blob);
  // Perhaps somebody has replaced it.
  if (!state.ok() || !state->is_damaged() ||
      !IsOld(place.folder.TimeOfHead(place.blob))) {
    return absl::OkStatus();
  }
  const absl::Status deleted = place.folder.DeleteHead(place.blob);
  if (deleted.ok())
    lock_->set_num_bytes(lock_->num_bytes() - state->file_bytes);
  return deleted;
}

absl::Status DirectoryStore::RemoveOrphan(const Place& place,
                                          uint64_t body_id) {
  const absl::StatusOr<DirectoryLock::Held> held = lock_->Lock();
  if (!held.ok()) return held.status();
  const absl::StatusOr<HeadState> state = place.folder.ReadHead(place.blob);
  if (!state.ok()) return state.status();
  // Whoever looks into a damaged head may want the body.
  const bool is_orphan = state->version == 0 ||
                         (state->is_blob() && state->head.body_id != body_id);
  if (!is_orphan) return absl::OkStatus();
  const int64_t bytes = place.folder.DeleteBody(place.blob, body_id);
  lock_->set_num_bytes(lock_->num_bytes() - bytes);
  return absl::OkStatus();
}

absl::Status DirectoryStore::Count() {
  const absl::StatusOr<DirectoryLock::Held> held = lock_->Lock();
  if (!held.ok()) return held.status();
  const absl::StatusOr<std::vector<std::string>> folders = FolderNames();
  if (!folders.ok()) return folders.status();
  int64_t bytes = 0;
  for (const std::string& folder : *folders) {
    const absl::StatusOr<BlobFolder> opened = OpenFolder(folder);
    if (!opened.ok()) return opened.status();
    const absl::StatusOr<int64_t> counted = opened->CountBytes();
    if (!counted.ok()) return counted.status();
    bytes += *counted;
  }
  lock_->set_num_bytes(bytes);
  return absl::OkStatus();
}

}  // namespace flash
