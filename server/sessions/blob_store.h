// Where bytes with a name are kept: memory, a directory or Redis.

#ifndef SERVER_SESSIONS_BLOB_STORE_H_
#define SERVER_SESSIONS_BLOB_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace flash {

// A small head, which is read and changed often, and a body, which never
// changes but is replaced as a whole. The store understands neither. The
// bodies that it returns, and those that it keeps in memory, are overwritten
// before their memory is free for others (body.h).
struct Blob {
  std::string head;
  std::shared_ptr<const std::string> body;  // not null; best of MakeBody()
};

// Names are made of [A-Za-z0-9._-] and at most one '/', which parts a folder
// from the rest: "sessions-4f2a/0123abcd". Neither part is empty, begins with
// '.', or has more than 128 characters. Anything else is INVALID_ARGUMENT.
//
// Every blob has a version, which the store raises with each change: who has
// read one changes only that one, so of two servers that change a blob at once
// one is told ABORTED. What a call acknowledged is there after a crash of this
// process (memory: of course not), and nobody ever reads half of a change.
//
// Errors of every function: INVALID_ARGUMENT for a bad name; UNAVAILABLE, with
// the store's address, if the store does not answer (in time); DATA_LOSS if
// what it holds cannot be understood.
//
// Thread safety: every function may be called from any thread; they wait for
// the store.
class BlobStore {
 public:
  virtual ~BlobStore() = default;

  struct Head {
    std::string head;
    int64_t version = 0;  // at least 1
    int64_t body_bytes = 0;
  };
  struct Entry {
    std::string name;
    Head head;
  };
  struct Found {
    Blob blob;
    int64_t version = 0;
  };
  struct Page {
    std::vector<Entry> entries;
    std::string next;  // where the next page begins; empty: there is none
  };

  // What it is, for messages and logs: "dir:/var/lib/flash".
  virtual std::string Describe() const = 0;

  // NOT_FOUND, also once it has expired.
  virtual absl::StatusOr<Found> Get(std::string_view name) = 0;
  virtual absl::StatusOr<Head> GetHead(std::string_view name) = 0;

  // Writes head and body. `expected`: the version it replaces; 0: there must be
  // none; unset: whatever is there. Returns the new version.
  //   ABORTED: another version is there.
  //   RESOURCE_EXHAUSTED: no room; names the limit. Nothing has changed.
  virtual absl::StatusOr<int64_t> Put(std::string_view name, const Blob& blob,
                                      std::optional<int64_t> expected,
                                      absl::Time expires) = 0;
  // Writes the head alone, and when the blob expires. NOT_FOUND; ABORTED. Does
  // not fail because a head is a little longer and the store full, but for a
  // Redis without memory: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<int64_t> PutHead(std::string_view name,
                                          std::string_view head,
                                          int64_t expected,
                                          absl::Time expires) = 0;
  // NOT_FOUND; ABORTED if `expected` is set and another version is there.
  virtual absl::Status Delete(std::string_view name,
                              std::optional<int64_t> expected) = 0;

  // The blobs of a folder (what stands before '/'), in no particular order,
  // about `limit` of them a page, which is at least 1. `from`: Page::next, or
  // empty; INVALID_ARGUMENT if it is neither. What is written meanwhile may be
  // missing, or be there twice. What cannot be understood is left out.
  virtual absl::StatusOr<Page> List(std::string_view folder,
                                    std::string_view from, int limit) = 0;

  // Deletes what has expired, where the store does not by itself.
  virtual absl::Status Sweep() = 0;

  // Blobs whose head the last Sweep() could not read.
  virtual int64_t num_damaged() const { return 0; }
};

// Makes the store that `spec` names: "memory", "dir:PATH", or
// "redis://[:PASSWORD@]HOST[:PORT][/DATABASE]". `max_bytes`: of all heads and
// bodies, for the first two (Redis has its own limit, and says when it is
// reached). `on_damage` (may be empty) is told in a sentence when num_damaged()
// has risen, on the thread that opens or sweeps. INVALID_ARGUMENT if `spec` is
// none of these; UNAVAILABLE if the store cannot be reached or written to.
absl::StatusOr<std::unique_ptr<BlobStore>> OpenBlobStore(
    std::string_view spec, int64_t max_bytes,
    std::function<void(const std::string&)> on_damage = nullptr);

}  // namespace flash

#endif  // SERVER_SESSIONS_BLOB_STORE_H_
