// Blobs in a directory, for servers on one machine or one volume.

#ifndef SERVER_SESSIONS_DIRECTORY_STORE_H_
#define SERVER_SESSIONS_DIRECTORY_STORE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/sessions/blob_folder.h"
#include "server/sessions/blob_store.h"
#include "server/sessions/directory_lock.h"

namespace flash {

// A folder of blobs is a folder of files (blob_folder.h). Reading needs no
// lock; writing holds the directory's for no more than two renames: what waits
// for the disk is done before and after. So a change that was acknowledged
// outlasts a loss of power, too.
//
// As many processes as like may have one directory open, each with this class:
// their file system must have flock().
//
// Errors, besides those of BlobStore: RESOURCE_EXHAUSTED also if the disk is
// full. If the directory is deleted everything is UNAVAILABLE until it is
// opened anew.
class DirectoryStore final : public BlobStore {
 public:
  // Makes the directory if it is not there, but not the one it is in. Deletes
  // what writers that died have left. UNAVAILABLE if it cannot be written to.
  // `max_bytes`: of all files of blobs, whoever wrote them. `on_damage`: as for
  // OpenBlobStore().
  static absl::StatusOr<std::unique_ptr<DirectoryStore>> Open(
      const std::string& path, int64_t max_bytes,
      std::function<void(const std::string&)> on_damage = nullptr);

  std::string Describe() const override { return description_; }
  absl::StatusOr<Found> Get(std::string_view name) override;
  absl::StatusOr<Head> GetHead(std::string_view name) override;
  absl::StatusOr<int64_t> Put(std::string_view name, const Blob& blob,
                              std::optional<int64_t> expected,
                              absl::Time expires) override;
  absl::StatusOr<int64_t> PutHead(std::string_view name, std::string_view head,
                                  int64_t expected,
                                  absl::Time expires) override;
  absl::Status Delete(std::string_view name,
                      std::optional<int64_t> expected) override;
  absl::StatusOr<Page> List(std::string_view folder, std::string_view from,
                            int limit) override;
  // Also what Open() deletes, and damaged heads that nobody has written for a
  // month, with their bodies: somebody may want to look into them before. What
  // cannot be read at all stays. Neither is an error.
  absl::Status Sweep() override;
  int64_t num_damaged() const override { return num_damaged_.load(); }

 private:
  // A blob's folder, and its name there.
  struct Place {
    BlobFolder folder;
    std::string blob;
  };
  enum class IfMissing { kFail, kMake };

  // What a sweep could not read.
  struct Damage {
    int64_t count = 0;
    std::string first;  // its name, and what is wrong with it
  };

  DirectoryStore(std::string description, int64_t max_bytes,
                 std::function<void(const std::string&)> on_damage,
                 FileDescriptor root, std::unique_ptr<DirectoryLock> lock)
      : description_(std::move(description)),
        max_bytes_(max_bytes),
        on_damage_(std::move(on_damage)),
        root_(std::move(root)),
        lock_(std::move(lock)) {}

  // INVALID_ARGUMENT; NOT_FOUND if there is no such folder.
  absl::StatusOr<Place> Find(std::string_view name, IfMissing if_missing);
  // "" is the directory itself, where the names without a folder are.
  absl::StatusOr<BlobFolder> OpenFolder(const std::string& folder);
  absl::StatusOr<std::vector<std::string>> FolderNames();

  // NOT_FOUND if nothing is there, or it has expired; DATA_LOSS.
  absl::StatusOr<HeadState> ReadBlob(const Place& place);

  // Makes `next` the head, and `body`, if there is one, the body, of what is
  // still as `before` says. ABORTED if it is not; RESOURCE_EXHAUSTED.
  absl::Status Replace(const Place& place, const HeadState& before,
                       const HeadFile& next, std::optional<NewFile>& body);
  absl::Status Remove(const Place& place, const HeadState& before);
  // ABORTED if it is not as `before` says. REQUIRES: the lock.
  absl::Status CheckUnchanged(const Place& place, const HeadState& before);
  absl::Status CheckRoom(int64_t added_bytes) const;

  absl::Status SweepFolder(const std::string& folder, Damage& damage);
  // Deletes a damaged head that is older than anybody will look into.
  absl::Status RemoveDamaged(const Place& place);
  // Deletes a body that is no blob's.
  absl::Status RemoveOrphan(const Place& place, uint64_t body_id);
  // Counts all bytes anew.
  absl::Status Count();

  const std::string description_;
  const int64_t max_bytes_;
  const std::function<void(const std::string&)> on_damage_;
  const FileDescriptor root_;
  const std::unique_ptr<DirectoryLock> lock_;
  std::atomic<int64_t> num_damaged_{0};
};

}  // namespace flash

#endif  // SERVER_SESSIONS_DIRECTORY_STORE_H_
