#include "server/sessions/session_claims.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/sessions/body.h"

namespace flash {
namespace {

absl::Status LostClaim(const SessionClaim& claim) {
  return absl::AbortedError(absl::StrCat(
      "session ", QuotedId(claim.id), " is no longer request \"",
      claim.request_id, "\"'s to write: another one has taken it over"));
}

bool IsClaimed(const SessionHead& head, int64_t epoch) {
  return head.lease.has_value() && head.epoch == epoch;
}

// The claim that is taken over; 0: none is.
int64_t TakenEpoch(const SessionHead& head, const std::string& request_id,
                   std::optional<int64_t> takeover_epoch) {
  if (takeover_epoch != kAnyEpoch) return takeover_epoch.value_or(0);
  const bool is_its_own =
      head.lease.has_value() && head.lease->request == request_id;
  return is_its_own ? head.epoch : 0;
}

absl::Status WrittenSince(const std::string& id, const SessionHead& head,
                          const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("session ", QuotedId(id),
                   " has been written since that epoch, by request ", "\"",
                   head.last_request, "\"", why, ": it has the whole text"));
}

}  // namespace

absl::Status SessionInUse(const std::string& id,
                          const SessionHead::Lease& lease) {
  return absl::AbortedError(
      absl::StrCat("session ", QuotedId(id), " is held by request \"",
                   lease.request, "\" on server \"", lease.server, "\""));
}

SessionClaims::SessionClaims(Options options, SessionTable* table,
                             EarlierTexts* earlier)
    : options_(std::move(options)),
      table_(*table),
      earlier_(*earlier),
      renewal_(options_.lease / 3, [this] { RenewAll(); }) {}

absl::StatusOr<SessionClaim> SessionClaims::Claim(
    const std::string& owner, const std::string& id,
    const std::string& request_id, std::optional<int64_t> takeover_epoch) {
  SessionClaim claim{.owner = owner, .id = id, .request_id = request_id};
  std::shared_ptr<const Snapshot> earlier;
  const auto claimed = table_.Change(owner, id, [&](SessionHead& head) {
    earlier = nullptr;
    const absl::Status status =
        CheckTakeover(claim, takeover_epoch, head, earlier);
    if (!status.ok()) return status;
    const int64_t taken_epoch = TakenEpoch(head, request_id, takeover_epoch);
    const absl::Time now = table_.now();
    if (head.IsHeld(now) && taken_epoch != head.epoch) {
      return SessionInUse(id, *head.lease);
    }
    ++head.epoch;
    if (earlier != nullptr) {
      head.first_epoch = head.written_first_epoch;
      head.repeated_epoch = head.epoch;
    } else if (taken_epoch == 0) {
      head.first_epoch = head.epoch;
      // A name that comes again is another request's from now on.
      if (head.last_request == request_id) head.written_first_epoch = 0;
    } else {
      head.first_epoch = std::min(head.first_epoch, taken_epoch);
    }
    head.lease = {.request = request_id,
                  .server = options_.server_id,
                  .ends = now + options_.lease};
    head.Use(now);
    return absl::OkStatus();
  });
  if (!claimed.ok()) return claimed.status();
  claim.epoch = claimed->head.epoch;
  StartHolding({owner, id, claim.epoch});
  if (earlier != nullptr) {
    claim.snapshot = std::move(earlier);
    claim.repeats = true;
    MutexLock lock(&mutex_);
    ++stats_.repeated;
    return claim;
  }
  auto snapshot =
      table_.ReadSnapshot(owner, id, *claimed, SnapshotCache::Use::kLast);
  if (!snapshot.ok()) {
    Release(claim);
    return snapshot.status();
  }
  claim.snapshot = *std::move(snapshot);
  return claim;
}

absl::Status SessionClaims::CheckTakeover(
    const SessionClaim& claim, std::optional<int64_t> takeover_epoch,
    const SessionHead& head, std::shared_ptr<const Snapshot>& earlier) {
  if (!takeover_epoch.has_value()) return absl::OkStatus();
  const int64_t epoch = *takeover_epoch;
  // Claims after the write that were no repeats were other requests'.
  const int64_t last = std::max(head.written_epoch, head.repeated_epoch);
  const bool is_its_own =
      head.written_first_epoch > 0 && head.last_request == claim.request_id &&
      (epoch == kAnyEpoch ||
       (epoch >= head.written_first_epoch && epoch <= last));
  if (!is_its_own) {
    if (epoch == kAnyEpoch || epoch > last) return absl::OkStatus();
    return WrittenSince(claim.id, head, "");
  }
  auto found = earlier_.Read(claim.owner, claim.id, head);
  if (absl::IsNotFound(found.status())) {
    return WrittenSince(claim.id, head,
                        ", and what it was before is not kept any more");
  }
  if (!found.ok()) return found.status();
  earlier = *std::move(found);
  return absl::OkStatus();
}

absl::StatusOr<SessionTable::Stored> SessionClaims::BeginCommit(
    const SessionClaim& claim) {
  std::shared_ptr<const std::string> body;
  auto stored = claim.repeats ? table_.Read(claim.owner, claim.id)
                              : table_.ReadBody(claim.owner, claim.id, body);
  // What is damaged can be replaced all the same.
  if (absl::IsDataLoss(stored.status())) {
    stored = table_.Read(claim.owner, claim.id);
  }
  if (!stored.ok()) return stored.status();
  if (!IsClaimed(stored->head, claim.epoch)) return LostClaim(claim);
  if (claim.repeats) {
    earlier_.KeepOn(claim.owner, claim.id);
  } else if (body != nullptr) {
    earlier_.Keep(claim.owner, claim.id, stored->head, std::move(body));
  }
  return stored;
}

absl::StatusOr<SessionTable::Stored> SessionClaims::Commit(
    const SessionClaim& claim, std::shared_ptr<const Snapshot> snapshot) {
  const auto body = MakeBody(table_.codec().Encode(*snapshot));
  const SessionHead written = table_.NewHead(*snapshot, absl::ZeroDuration());
  const bool was_held = StopHolding({claim.owner, claim.id, claim.epoch});
  for (int tries = 0; tries < kMaxSessionTries; ++tries) {
    auto stored = BeginCommit(claim);
    if (!stored.ok()) {
      MutexLock lock(&mutex_);
      if (was_held && absl::IsAborted(stored.status())) ++stats_.lost;
      return stored.status();
    }
    SessionHead& head = stored->head;
    head.snapshot = written.snapshot;
    head.num_tokens = written.num_tokens;
    head.num_pending = written.num_pending;
    head.written_epoch = claim.epoch;
    head.written_first_epoch = head.first_epoch;
    head.last_request = claim.request_id;
    head.lease.reset();
    head.Use(table_.now());
    const absl::Status status = earlier_.WithRoom(
        static_cast<int64_t>(body->size()),
        [&] { return table_.Write(claim.owner, claim.id, body, *stored); });
    if (absl::IsAborted(status)) continue;
    if (!status.ok()) return status;
    table_.cache().Put(head.snapshot, std::move(snapshot));
    MutexLock lock(&mutex_);
    ++stats_.committed;
    return stored;
  }
  return ChangedWithoutEnd(claim.id);
}

void SessionClaims::Release(const SessionClaim& claim) {
  StopHolding({claim.owner, claim.id, claim.epoch});
  (void)table_.Change(claim.owner, claim.id, [&](SessionHead& head) {
    if (!IsClaimed(head, claim.epoch)) return LostClaim(claim);
    head.lease.reset();
    head.Use(table_.now());
    return absl::OkStatus();
  });
}

SessionClaims::Stats SessionClaims::stats() const {
  MutexLock lock(&mutex_);
  return stats_;
}

void SessionClaims::StartHolding(const Held& held) {
  MutexLock lock(&mutex_);
  const auto [place, added] = held_.try_emplace(held.id, held);
  if (added) return;
  ++stats_.lost;  // it was another request of this server
  if (place->second.epoch < held.epoch) place->second = held;
}

bool SessionClaims::StopHolding(const Held& held) {
  MutexLock lock(&mutex_);
  const auto found = held_.find(held.id);
  if (found == held_.end() || found->second.epoch != held.epoch) return false;
  held_.erase(found);
  return true;
}

void SessionClaims::Renew(const Held& held) {
  const absl::Time now = table_.now();
  const auto renewed =
      table_.Change(held.owner, held.id, [&](SessionHead& head) {
        if (!IsClaimed(head, held.epoch)) return absl::AbortedError("lost");
        head.lease->ends = now + options_.lease;
        head.Use(now);
        return absl::OkStatus();
      });
  const bool lost =
      absl::IsAborted(renewed.status()) || absl::IsNotFound(renewed.status());
  if (!lost || !StopHolding(held)) return;
  MutexLock lock(&mutex_);
  ++stats_.lost;
}

void SessionClaims::RenewAll() {
  std::vector<Held> all;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, held] : held_) all.push_back(held);
  }
  for (const Held& held : all) Renew(held);
}

}  // namespace flash
