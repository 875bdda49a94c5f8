#include "server/sessions/sessions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/sessions/body.h"

namespace flash {
namespace {

constexpr absl::Duration kSweepPeriod = absl::Minutes(1);

}  // namespace

Sessions::Sessions(Options options, BlobStore* store,
                   const SnapshotCodec* codec)
    : options_(std::move(options)),
      table_(store, codec, options_.cache_bytes, options_.now),
      earlier_(&table_, options_.keep_earlier),
      claims_({.lease = options_.lease, .server_id = options_.server_id},
              &table_, &earlier_),
      counts_(options_.max_sessions_per_owner),
      sweeping_(kSweepPeriod, [this] { table_.Sweep(); }) {}

absl::StatusOr<SessionInfo> Sessions::Create(
    const std::string& owner, const std::string& request_id,
    std::shared_ptr<const Snapshot> snapshot,
    std::optional<absl::Duration> time_to_live) {
  const absl::Duration ttl = time_to_live.value_or(options_.time_to_live);
  absl::Status status = CheckTimeToLive(ttl);
  if (status.ok()) status = CheckRoom(owner, 1);
  if (!status.ok()) return status;
  SessionHead head = table_.NewHead(*snapshot, ttl);
  head.last_request = request_id;
  const std::string name = head.snapshot;
  auto info =
      Add(owner, std::move(head), MakeBody(table_.codec().Encode(*snapshot)));
  if (info.ok()) table_.cache().Put(name, std::move(snapshot));
  return info;
}

absl::StatusOr<std::shared_ptr<const Snapshot>> Sessions::Open(
    const std::string& owner, const std::string& id) {
  for (int tries = 0; tries < kMaxSessionTries; ++tries) {
    const auto stored = table_.Read(owner, id);
    if (!stored.ok()) return stored.status();
    auto snapshot =
        table_.ReadSnapshot(owner, id, *stored, SnapshotCache::Use::kAgain);
    if (absl::IsAborted(snapshot.status())) continue;
    if (snapshot.ok()) table_.Touch(owner, id, *stored);
    return snapshot;
  }
  return ChangedWithoutEnd(id);
}

absl::StatusOr<SessionClaim> Sessions::Claim(
    const std::string& owner, const std::string& id,
    const std::string& request_id, std::optional<int64_t> takeover_epoch) {
  return claims_.Claim(owner, id, request_id, takeover_epoch);
}

absl::StatusOr<SessionInfo> Sessions::Commit(
    const SessionClaim& claim, std::shared_ptr<const Snapshot> snapshot) {
  const auto stored = claims_.Commit(claim, std::move(snapshot));
  if (!stored.ok()) return stored.status();
  return InfoOf(claim.id, *stored);
}

void Sessions::Release(const SessionClaim& claim) { claims_.Release(claim); }

absl::StatusOr<SessionInfo> Sessions::Get(const std::string& owner,
                                          const std::string& id) {
  const auto stored = table_.Read(owner, id);
  if (!stored.ok()) return stored.status();
  return InfoOf(id, *stored);
}

absl::StatusOr<Sessions::Page> Sessions::List(const std::string& owner,
                                              const std::string& from,
                                              int limit) {
  auto listed = table_.List(owner, from, limit);
  if (!listed.ok()) return listed.status();
  Page page;
  page.next = std::move(listed->next);
  for (const SessionTable::Listed& each : listed->sessions) {
    page.sessions.push_back(InfoOf(each.id, each.stored));
  }
  return page;
}

absl::StatusOr<std::vector<SessionInfo>> Sessions::Fork(
    const std::string& owner, const std::string& id, int count) {
  if (count < 1 || count > options_.max_forks) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot fork session ", QuotedId(id), " ", count,
                     " times: 1 to ", options_.max_forks, " are possible"));
  }
  std::shared_ptr<const std::string> body;
  const auto stored = table_.ReadBody(owner, id, body);
  if (!stored.ok()) return stored.status();
  const absl::Status room = CheckRoom(owner, count);
  if (!room.ok()) return room;
  SessionHead head = stored->head;
  head.epoch = head.first_epoch = 0;
  head.written_epoch = head.written_first_epoch = head.repeated_epoch = 0;
  head.lease.reset();
  head.created = table_.now();
  head.Use(head.created);
  std::vector<SessionInfo> forks;
  while (static_cast<int>(forks.size()) < count) {
    auto fork = Add(owner, head, body);
    if (!fork.ok()) {
      for (const SessionInfo& made : forks) (void)Delete(owner, made.id);
      counts_.Remove(owner, count - static_cast<int>(forks.size()) - 1);
      return fork.status();
    }
    forks.push_back(*std::move(fork));
  }
  table_.Touch(owner, id, *stored);
  return forks;
}

absl::Status Sessions::Delete(const std::string& owner, const std::string& id) {
  for (int tries = 0; tries < kMaxSessionTries; ++tries) {
    const auto stored = table_.Read(owner, id);
    if (!stored.ok()) return stored.status();
    if (stored->head.IsHeld(table_.now())) {
      return SessionInUse(id, *stored->head.lease);
    }
    const absl::Status deleted = table_.Delete(owner, id, *stored);
    if (absl::IsAborted(deleted)) continue;
    if (!deleted.ok()) return deleted;
    earlier_.Forget(owner, id);
    counts_.Remove(owner, 1);
    return absl::OkStatus();
  }
  return ChangedWithoutEnd(id);
}

absl::StatusOr<SessionInfo> Sessions::Pin(const std::string& owner,
                                          const std::string& id,
                                          absl::Duration time_to_live) {
  const absl::Status status = CheckTimeToLive(time_to_live);
  if (!status.ok()) return status;
  const auto pinned = table_.Change(owner, id, [&](SessionHead& head) {
    head.time_to_live = time_to_live;
    head.Use(table_.now());
    return absl::OkStatus();
  });
  if (!pinned.ok()) return pinned.status();
  return InfoOf(id, *pinned);
}

absl::StatusOr<std::shared_ptr<const std::string>> Sessions::Export(
    const std::string& owner, const std::string& id) {
  std::shared_ptr<const std::string> body;
  const auto stored = table_.ReadBody(owner, id, body);
  if (!stored.ok()) return stored.status();
  table_.Touch(owner, id, *stored);
  return body;
}

absl::StatusOr<SessionInfo> Sessions::Import(const std::string& owner,
                                             std::string bytes) {
  const auto body = MakeBody(std::move(bytes));
  auto snapshot = table_.codec().Decode(*body);
  if (!snapshot.ok()) return snapshot.status();
  const absl::Status room = CheckRoom(owner, 1);
  if (!room.ok()) return room;
  SessionHead head = table_.NewHead(**snapshot, options_.time_to_live);
  const std::string name = head.snapshot;
  auto info = Add(owner, std::move(head), body);
  if (info.ok()) table_.cache().Put(name, *std::move(snapshot));
  return info;
}

Sessions::Stats Sessions::stats() const {
  const SnapshotCache::Stats cache = table_.cache().stats();
  const SessionClaims::Stats claims = claims_.stats();
  return {.cached_sessions = cache.snapshots,
          .cached_bytes = cache.bytes,
          .cache_hits = cache.hits,
          .cache_misses = cache.misses,
          .created = num_created_.load(),
          .committed = claims.committed,
          .repeated_answers = claims.repeated,
          .lost_claims = claims.lost,
          .store_errors = table_.num_store_errors()};
}

absl::StatusOr<SessionInfo> Sessions::Add(
    const std::string& owner, SessionHead head,
    std::shared_ptr<const std::string> body) {
  const std::string id = SessionTable::NewId();
  head.owner = owner;
  SessionTable::Stored stored = {.head = std::move(head)};
  const absl::Status status =
      earlier_.WithRoom(static_cast<int64_t>(body->size()),
                        [&] { return table_.Write(owner, id, body, stored); });
  if (!status.ok()) {
    counts_.Remove(owner, 1);
    return status;
  }
  ++num_created_;
  return InfoOf(id, stored);
}

absl::Status Sessions::CheckRoom(const std::string& owner, int64_t count) {
  return counts_.Add(owner, count, table_.now(),
                     [&] { return table_.Count(owner); });
}

absl::Status Sessions::CheckTimeToLive(absl::Duration time_to_live) const {
  if (time_to_live > absl::ZeroDuration() &&
      time_to_live <= options_.max_time_to_live) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a session cannot live for ", absl::FormatDuration(time_to_live),
      "; the most is ", absl::FormatDuration(options_.max_time_to_live)));
}

SessionInfo Sessions::InfoOf(const std::string& id,
                             const SessionTable::Stored& stored) const {
  const SessionHead& head = stored.head;
  SessionInfo info;
  info.id = id;
  info.num_tokens = head.num_tokens;
  info.num_pending = head.num_pending;
  info.bytes = stored.bytes;
  info.epoch = head.epoch;
  info.created = head.created;
  info.used = head.used;
  info.expires = head.expires;
  info.in_use = head.IsHeld(table_.now());
  info.last_request = head.last_request;
  return info;
}

}  // namespace flash
