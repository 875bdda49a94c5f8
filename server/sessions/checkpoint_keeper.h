// Checkpoints of running requests in a store: what another server goes on from
// when this one is gone.

#ifndef SERVER_SESSIONS_CHECKPOINT_KEEPER_H_
#define SERVER_SESSIONS_CHECKPOINT_KEEPER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"
#include "server/scheduler/prefix_states.h"
#include "server/sessions/blob_store.h"

namespace flash {

// A thread of its own writes: whoever puts and drops never waits. A store that
// is slow gets only the newest checkpoint of each request; one that is down
// gets none, which is counted and told, and serving goes on.
//
// Of each request the last two are in the store: its client may not yet have
// had all the tokens that the newest one stands for.
//
// In the store a checkpoint is "checkpoints-OWNER/REQUEST-0" or "-1", where
// OWNER and REQUEST are hashes. The body is the state, the head
//   8 bytes   "FLASHCKP"
//   u32       1, the version of this format
//   32 bytes  the PrefixKey
//   32 bytes  SHA-256 of the key and the body
// The key stands for the tokens and for all that the state's bits depend on.
//
// Thread safety: every function may be called from any thread.
class CheckpointKeeper final : public Checkpoints {
 public:
  struct Options {
    // After its last checkpoint nobody comes back to a request.
    absl::Duration time_to_live = absl::Minutes(10);
    // States that are not written yet, with the one that is being written; one
    // alone may wait whatever its size.
    int64_t max_waiting_bytes = int64_t{256} << 20;
    // Requests of which something waits to be written or deleted.
    size_t max_waiting = 4096;
    // How long the destructor goes on writing what waits.
    std::chrono::milliseconds last_writes{2000};
    // Told, on the thread that writes, when the store fails after it has
    // worked. May be empty.
    std::function<void(const absl::Status&)> on_failure;
    std::function<absl::Time()> now = [] { return absl::Now(); };
  };

  // The counters only rise.
  struct Stats {
    int64_t written = 0;
    int64_t replaced = 0;  // by newer ones before they were written
    int64_t dropped = 0;   // too much was waiting
    int64_t failed = 0;    // writes and deletions that the store refused
    int64_t deleted = 0;   // of requests that are over
    int64_t recalled = 0;
    int64_t recall_misses = 0;  // also those of another text
    int64_t recall_failures = 0;
    int64_t waiting = 0;
    int64_t waiting_bytes = 0;  // with what is being written
  };

  // `store` is borrowed.
  CheckpointKeeper(Options options, BlobStore* store);
  ~CheckpointKeeper() override;
  CheckpointKeeper(const CheckpointKeeper&) = delete;
  CheckpointKeeper& operator=(const CheckpointKeeper&) = delete;

  std::shared_ptr<const std::string> Put(
      const Request& request, const PrefixKey& key, int64_t position,
      std::shared_ptr<const std::string> state) override;
  void Drop(const Request& request) override;

  struct Recalled {
    size_t num_chunks = 0;
    std::shared_ptr<const std::string> state;
  };
  // The checkpoint of a request, here or on another server, that stands for the
  // longest beginning of a text; keys[n] stands for its first n + 1 chunks. For
  // PrefixCache::Put(). Waits for the store.
  //   NOT_FOUND: there is none, or of another text only.
  //   DATA_LOSS: it is damaged.
  //   those of BlobStore::Get().
  absl::StatusOr<Recalled> Recall(const std::string& owner,
                                  const std::string& request_id,
                                  std::span<const PrefixKey> keys);

  Stats stats() const;

 private:
  struct Checkpoint {
    PrefixKey key;
    std::shared_ptr<const std::string> state;
  };
  // What is to be done about a request's blobs; no checkpoint: delete them.
  struct Work {
    std::string name;
    std::optional<Checkpoint> checkpoint;
    int64_t number = 0;  // of the checkpoint among the request's

    int64_t bytes() const {
      return checkpoint ? static_cast<int64_t>(checkpoint->state->size()) : 0;
    }
  };

  // Has `work` done soon, instead of what waits of that request, which `work`
  // is afterwards. False if there is no room.
  bool Enqueue(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The thread: what has waited longest, until there is nothing more to do.
  void Loop();
  std::optional<Work> Next();
  absl::Status Write(const Work& work);
  absl::Status Delete(const std::string& name);
  void Count(const Work& work, const absl::Status& status);

  absl::StatusOr<Recalled> Read(const std::string& name,
                                std::span<const PrefixKey> keys);

  const Options options_;
  BlobStore& store_;

  mutable Mutex mutex_;
  CondVar changed_;
  // By name, and the names in order. A name is in both or in neither.
  std::unordered_map<std::string, Work> waiting_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> order_ ABSL_GUARDED_BY(mutex_);
  // How many checkpoints each request has had, by name.
  std::unordered_map<std::string, int64_t> num_put_ ABSL_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> end_at_ ABSL_GUARDED_BY(mutex_);
  bool store_works_ ABSL_GUARDED_BY(mutex_) = true;
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace flash

#endif  // SERVER_SESSIONS_CHECKPOINT_KEEPER_H_
