// The sessions as they stand in the store, and in front of it a cache of their
// decoded snapshots.

#ifndef SERVER_SESSIONS_SESSION_TABLE_H_
#define SERVER_SESSIONS_SESSION_TABLE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/scheduler/snapshot.h"
#include "server/sessions/blob_store.h"
#include "server/sessions/session_head.h"
#include "server/sessions/snapshot_cache.h"
#include "server/sessions/snapshot_codec.h"

namespace flash {

// Others that change the same head at once are few: the requests of one
// session, and the renewal of its claim.
inline constexpr int kMaxSessionTries = 20;

// A session by its id, for messages: at most so long, and printable.
std::string QuotedId(const std::string& id);

// The body is written all the time: it was not to be had in kMaxSessionTries.
absl::Status ChangedWithoutEnd(const std::string& id);

// Errors of every function, besides those that are named: those of BlobStore
// and SnapshotCodec, with the session's id; NOT_FOUND for what is another
// owner's, has expired, or never was.
//
// Thread safety: every function may be called from any thread. They wait for
// the store.
class SessionTable {
 public:
  // `store` and `codec` are borrowed. `cache_bytes`: of decoded snapshots.
  SessionTable(BlobStore* store, const SnapshotCodec* codec,
               int64_t cache_bytes, std::function<absl::Time()> now);

  // A head as it is in the store.
  struct Stored {
    SessionHead head;
    int64_t version = 0;  // BlobStore's
    int64_t bytes = 0;    // of the body
  };
  absl::StatusOr<Stored> Read(const std::string& owner, const std::string& id);
  // The same with the body, which is set.
  absl::StatusOr<Stored> ReadBody(const std::string& owner,
                                  const std::string& id,
                                  std::shared_ptr<const std::string>& body);
  // What the head of `stored` says, from the cache or the store. ABORTED if the
  // body has changed meanwhile.
  absl::StatusOr<std::shared_ptr<const Snapshot>> ReadSnapshot(
      const std::string& owner, const std::string& id, const Stored& stored,
      SnapshotCache::Use use);

  // Writes the head that `edit` makes of the stored one, from anew if another
  // writer comes between. An error of `edit` is returned.
  using Edit = std::function<absl::Status(SessionHead& head)>;
  absl::StatusOr<Stored> Change(const std::string& owner, const std::string& id,
                                const Edit& edit);
  // Writes head and body over `stored.version`, 0 being a new one's. ABORTED if
  // another version is there. Raises `stored` to what is written.
  absl::Status Write(const std::string& owner, const std::string& id,
                     std::shared_ptr<const std::string> body, Stored& stored);
  // ABORTED if `stored` is no longer what is there.
  absl::Status Delete(const std::string& owner, const std::string& id,
                      const Stored& stored);

  struct Listed {
    std::string id;
    Stored stored;
  };
  struct Page {
    std::vector<Listed> sessions;
    std::string next;  // empty: there are no more
  };
  absl::StatusOr<Page> List(const std::string& owner, const std::string& from,
                            int limit);
  // How many names the owner has in the store.
  absl::StatusOr<int64_t> Count(const std::string& owner);

  // A use that need not be written down at once.
  void Touch(const std::string& owner, const std::string& id,
             const Stored& stored);
  void Sweep();

  // An id that nobody guesses.
  static std::string NewId();
  // Of a session that says `snapshot`, and has no owner yet.
  SessionHead NewHead(const Snapshot& snapshot,
                      absl::Duration time_to_live) const;
  absl::Time now() const { return now_(); }

  BlobStore& store() { return store_; }
  const SnapshotCodec& codec() const { return codec_; }
  SnapshotCache& cache() { return cache_; }
  const SnapshotCache& cache() const { return cache_; }
  int64_t num_store_errors() const { return num_store_errors_.load(); }

  // `status` of the store or the codec, as the caller should see it.
  absl::Status Told(const absl::Status& status, const std::string& id);

 private:
  BlobStore& store_;
  const SnapshotCodec& codec_;
  SnapshotCache cache_;
  const std::function<absl::Time()> now_;
  std::atomic<int64_t> num_store_errors_{0};
};

}  // namespace flash

#endif  // SERVER_SESSIONS_SESSION_TABLE_H_
