#include "server/service/request_sessions.h"

#include <utility>

#include "server/service/errors.h"

namespace flash {

RequestSessions::RequestSessions(Sessions* sessions, SessionUse use,
                                 std::string owner, std::string request_id)
    : sessions_(*sessions),
      use_(std::move(use)),
      owner_(std::move(owner)),
      request_id_(std::move(request_id)) {}

absl::StatusOr<std::shared_ptr<const Snapshot>> RequestSessions::Open() {
  if (use_.id.empty()) return std::shared_ptr<const Snapshot>();
  if (use_.unchanged) {
    auto snapshot = sessions_.Open(owner_, use_.id);
    if (!snapshot.ok()) return SessionError(snapshot.status());
    return snapshot;
  }
  auto claim =
      sessions_.Claim(owner_, use_.id, request_id_, use_.takeover_epoch);
  if (!claim.ok()) return SessionError(claim.status());
  epoch_ = claim->epoch;
  // The text is the request's to keep, and need not be kept here too.
  std::shared_ptr<const Snapshot> snapshot = std::move(claim->snapshot);
  MutexLock lock(&mutex_);
  claim_ = *std::move(claim);
  return snapshot;
}

absl::StatusOr<SessionInfo> RequestSessions::Save(
    std::shared_ptr<const Snapshot> snapshot) {
  if (snapshot == nullptr) {
    return SnapshotError(absl::FailedPreconditionError(
        "the time limit passed before the text had been run"));
  }
  std::optional<SessionClaim> claim;
  {
    MutexLock lock(&mutex_);
    claim = claim_;
  }
  auto info = claim.has_value()
                  ? sessions_.Commit(*claim, std::move(snapshot))
                  : sessions_.Create(owner_, request_id_, std::move(snapshot),
                                     std::nullopt);
  if (!info.ok()) return SessionError(info.status());
  MutexLock lock(&mutex_);
  claim_.reset();
  return info;
}

bool RequestSessions::HoldsClaim() const {
  MutexLock lock(&mutex_);
  return claim_.has_value();
}

void RequestSessions::Release() {
  std::optional<SessionClaim> claim;
  {
    MutexLock lock(&mutex_);
    claim = std::exchange(claim_, std::nullopt);
  }
  if (claim.has_value()) sessions_.Release(*claim);
}

}  // namespace flash
