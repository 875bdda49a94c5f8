// What sessions were before they were last written, for a while: so that an
// answer whose end was lost on its way can be given once more.

#ifndef SERVER_SESSIONS_EARLIER_TEXTS_H_
#define SERVER_SESSIONS_EARLIER_TEXTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"
#include "server/sessions/session_head.h"
#include "server/sessions/session_table.h"

namespace flash {

// One for each session at most. They stand in the sessions' store beside them,
// where every server finds them, and count towards its room. Where that is full
// those that this server has kept are the first to go, the oldest before the
// others.
//
// Thread safety: every function may be called from any thread. They wait for
// the store.
class EarlierTexts {
 public:
  // `table` is borrowed. Each is kept for `time`.
  EarlierTexts(SessionTable* table, absl::Duration time)
      : table_(*table), time_(time) {}

  // `head` and `body` are what the last claim is about to replace. If they
  // cannot be kept, the answer cannot be given again; nobody is told.
  void Keep(const std::string& owner, const std::string& id, SessionHead head,
            std::shared_ptr<const std::string> body);
  // The same answer is about to be written once more: what it goes on from
  // stays.
  void KeepOn(const std::string& owner, const std::string& id);

  // What the session was before the answer that `head`, which is the session's
  // as it is now, has last been written by. NOT_FOUND.
  absl::StatusOr<std::shared_ptr<const Snapshot>> Read(const std::string& owner,
                                                       const std::string& id,
                                                       const SessionHead& head);

  // The session is deleted.
  void Forget(const std::string& owner, const std::string& id);

  // Calls `write`, which takes about `bytes` of the store, and while that is
  // full makes room for it and calls it again.
  absl::Status WithRoom(int64_t bytes,
                        const std::function<absl::Status()>& write);

 private:
  struct Kept {
    std::string name;
    int64_t version = 0;  // BlobStore's
    int64_t bytes = 0;
    absl::Time expires;
  };

  void Remember(Kept kept);
  // Deletes some that this server has kept, of about `bytes` together; false if
  // there was none.
  bool MakeRoom(int64_t bytes);
  // Lets the store delete what has expired, if there is any of this server's.
  bool DropExpired();

  SessionTable& table_;
  const absl::Duration time_;

  Mutex mutex_;
  std::deque<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // by this server, in order
  bool some_expired_ ABSL_GUARDED_BY(mutex_) = false;  // and may be there still
};

}  // namespace flash

#endif  // SERVER_SESSIONS_EARLIER_TEXTS_H_
