// Blobs in this process's memory: gone with it.

#ifndef SERVER_SESSIONS_MEMORY_STORE_H_
#define SERVER_SESSIONS_MEMORY_STORE_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"
#include "server/sessions/blob_store.h"

namespace flash {

class MemoryStore final : public BlobStore {
 public:
  // `max_bytes`: of all heads and bodies.
  explicit MemoryStore(int64_t max_bytes) : max_bytes_(max_bytes) {}

  std::string Describe() const override { return "memory"; }
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
  absl::Status Sweep() override;

 private:
  struct Kept {
    Blob blob;
    int64_t version = 0;
    absl::Time expires;
  };
  // Sorted, so that a folder is one range and a page begins where one ended.
  using Blobs = std::map<std::string, Kept, std::less<>>;

  // The blob of that name, or end() once it has expired.
  Blobs::iterator Find(std::string_view name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // RESOURCE_EXHAUSTED if `added_bytes` more are too many.
  absl::Status CheckRoom(int64_t added_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Blobs::node_type Take(Blobs::iterator blob)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t max_bytes_;
  Mutex mutex_;
  Blobs blobs_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // One count for all blobs, so that a name that is deleted and made anew never
  // has a version that it had before.
  int64_t last_version_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace flash

#endif  // SERVER_SESSIONS_MEMORY_STORE_H_
