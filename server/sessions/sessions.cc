#include "server/sessions/sessions.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "server/model/digest.h"
#include "server/sessions/body.h"

namespace flash {
namespace {

constexpr size_t kIdBytes = 16;
// Others that change the same head at once are few: the requests of one
// session, and the renewal of its claim.
constexpr int kMaxTries = 20;
constexpr int kPageEntries = 1000;
constexpr absl::Duration kSweepPeriod = absl::Minutes(1);

std::string RandomBytes() {
  std::string bytes(kIdBytes, '\0');
  FLASH_CHECK(getrandom(bytes.data(), bytes.size(), 0) ==
              static_cast<ssize_t>(bytes.size()));
  return bytes;
}

bool IsId(const std::string& id) {
  return id.size() == 2 * kIdBytes &&
         id.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Whoever finds another owner with the same folder reads nothing of his: the
// head is compared.
std::string FolderOf(const std::string& owner) {
  return absl::StrCat("sessions-", HexDigestOf(owner));
}

std::string NameOf(const std::string& owner, const std::string& id) {
  return absl::StrCat(FolderOf(owner), "/", id);
}

std::string Quoted(const std::string& id) {
  return absl::StrCat("\"", absl::CHexEscape(id.substr(0, 64)), "\"");
}

absl::Status NoSuchSession(const std::string& id) {
  return absl::NotFoundError(absl::StrCat("there is no session ", Quoted(id)));
}

absl::Status LostClaim(const SessionClaim& claim) {
  return absl::AbortedError(absl::StrCat(
      "session ", Quoted(claim.id), " is no longer request \"",
      claim.request_id, "\"'s to write: another one has taken it over"));
}

absl::Status InUse(const std::string& id, const SessionHead::Lease& lease) {
  return absl::AbortedError(
      absl::StrCat("session ", Quoted(id), " is held by request \"",
                   lease.request, "\" on server \"", lease.server, "\""));
}

bool IsClaimed(const SessionHead& head, int64_t epoch) {
  return head.lease.has_value() && head.epoch == epoch;
}

}  // namespace

Sessions::Sessions(Options options, BlobStore* store,
                   const SnapshotCodec* codec)
    : options_(std::move(options)),
      store_(*store),
      codec_(*codec),
      cache_(options_.cache_bytes),
      counts_(options_.max_sessions_per_owner),
      renewer_([this] { Repeat(options_.lease / 3, &Sessions::RenewAll); }),
      sweeper_([this] { Repeat(kSweepPeriod, &Sessions::Sweep); }) {}

Sessions::~Sessions() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stopped_.NotifyAll();
  }
  renewer_.join();
  sweeper_.join();
}

absl::StatusOr<SessionInfo> Sessions::Create(
    const std::string& owner, const std::string& request_id,
    std::shared_ptr<const Snapshot> snapshot,
    std::optional<absl::Duration> time_to_live) {
  const absl::Duration ttl = time_to_live.value_or(options_.time_to_live);
  absl::Status status = CheckTimeToLive(ttl);
  if (status.ok()) status = CheckRoom(owner, 1);
  if (!status.ok()) return status;
  SessionHead head = NewHead(*snapshot, ttl);
  head.last_request = request_id;
  const std::string name = head.snapshot;
  auto info = Add(owner, std::move(head), MakeBody(codec_.Encode(*snapshot)));
  if (info.ok()) cache_.Put(name, std::move(snapshot));
  return info;
}

absl::StatusOr<std::shared_ptr<const Snapshot>> Sessions::Open(
    const std::string& owner, const std::string& id) {
  for (int tries = 0; tries < kMaxTries; ++tries) {
    const auto stored = ReadStored(owner, id);
    if (!stored.ok()) return stored.status();
    auto snapshot =
        ReadSnapshot(owner, id, *stored, SnapshotCache::Use::kAgain);
    if (absl::IsAborted(snapshot.status())) continue;
    if (snapshot.ok()) Touch(owner, id, *stored);
    return snapshot;
  }
  return absl::AbortedError(
      absl::StrCat("session ", Quoted(id), " is written all the time"));
}

absl::StatusOr<SessionClaim> Sessions::Claim(
    const std::string& owner, const std::string& id,
    const std::string& request_id, std::optional<int64_t> takeover_epoch) {
  const auto claimed = Change(owner, id, [&](SessionHead& head) {
    if (takeover_epoch.has_value() && head.written_epoch >= *takeover_epoch) {
      return absl::FailedPreconditionError(
          absl::StrCat("session ", Quoted(id), " has been written since epoch ",
                       *takeover_epoch, ", by request \"", head.last_request,
                       "\": it cannot be taken over as it was"));
    }
    const absl::Time now = options_.now();
    if (head.IsHeld(now) && takeover_epoch != head.epoch) {
      return InUse(id, *head.lease);
    }
    ++head.epoch;
    head.lease = {.request = request_id,
                  .server = options_.server_id,
                  .ends = now + options_.lease};
    head.Use(now);
    return absl::OkStatus();
  });
  if (!claimed.ok()) return claimed.status();
  SessionClaim claim{owner, id, request_id, claimed->head.epoch, nullptr};
  {
    MutexLock lock(&mutex_);
    const auto [held, added] = held_.try_emplace(id);
    if (!added) ++stats_.lost_claims;  // it was another request of this server
    if (added || held->second.epoch < claim.epoch) {
      held->second = {owner, id, claim.epoch};
    }
  }
  auto snapshot = ReadSnapshot(owner, id, *claimed, SnapshotCache::Use::kLast);
  if (!snapshot.ok()) {
    Release(claim);
    return snapshot.status();
  }
  claim.snapshot = *std::move(snapshot);
  return claim;
}

absl::StatusOr<SessionInfo> Sessions::Commit(
    const SessionClaim& claim, std::shared_ptr<const Snapshot> snapshot) {
  Blob blob;
  blob.body = MakeBody(codec_.Encode(*snapshot));
  const SessionHead written = NewHead(*snapshot, absl::ZeroDuration());
  const bool was_held = StopHolding({claim.owner, claim.id, claim.epoch});
  for (int tries = 0; tries < kMaxTries; ++tries) {
    auto stored = ReadStored(claim.owner, claim.id);
    if (!stored.ok()) return stored.status();
    SessionHead& head = stored->head;
    if (!IsClaimed(head, claim.epoch)) {
      MutexLock lock(&mutex_);
      if (was_held) ++stats_.lost_claims;
      return LostClaim(claim);
    }
    head.snapshot = written.snapshot;
    head.num_tokens = written.num_tokens;
    head.num_pending = written.num_pending;
    head.written_epoch = claim.epoch;
    head.last_request = claim.request_id;
    head.lease.reset();
    head.Use(options_.now());
    blob.head = WriteSessionHead(head);
    const auto version = store_.Put(NameOf(claim.owner, claim.id), blob,
                                    stored->version, head.expires);
    if (absl::IsAborted(version.status())) continue;
    if (!version.ok()) return Told(version.status(), claim.id);
    cache_.Put(head.snapshot, std::move(snapshot));
    stored->bytes = static_cast<int64_t>(blob.body->size());
    MutexLock lock(&mutex_);
    ++stats_.committed;
    return InfoOf(claim.id, *stored);
  }
  return absl::AbortedError(
      absl::StrCat("session ", Quoted(claim.id), " is changed all the time"));
}

void Sessions::Release(const SessionClaim& claim) {
  StopHolding({claim.owner, claim.id, claim.epoch});
  (void)Change(claim.owner, claim.id, [&](SessionHead& head) {
    if (!IsClaimed(head, claim.epoch)) return LostClaim(claim);
    head.lease.reset();
    head.Use(options_.now());
    return absl::OkStatus();
  });
}

absl::StatusOr<SessionInfo> Sessions::Get(const std::string& owner,
                                          const std::string& id) {
  const auto stored = ReadStored(owner, id);
  if (!stored.ok()) return stored.status();
  return InfoOf(id, *stored);
}

absl::StatusOr<Sessions::Page> Sessions::List(const std::string& owner,
                                              const std::string& from,
                                              int limit) {
  const std::string folder = FolderOf(owner);
  const auto listed = store_.List(folder, from, limit);
  if (!listed.ok()) return Told(listed.status(), "");
  const absl::Time now = options_.now();
  Page page;
  page.next = listed->next;
  for (const BlobStore::Entry& entry : listed->entries) {
    auto head = ReadSessionHead(entry.head.head);
    if (!head.ok() || head->owner != owner || head->expires <= now) continue;
    page.sessions.push_back(
        InfoOf(entry.name.substr(folder.size() + 1),
               {*std::move(head), entry.head.version, entry.head.body_bytes}));
  }
  return page;
}

absl::StatusOr<std::vector<SessionInfo>> Sessions::Fork(
    const std::string& owner, const std::string& id, int count) {
  if (count < 1 || count > options_.max_forks) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot fork session ", Quoted(id), " ", count,
                     " times: 1 to ", options_.max_forks, " are possible"));
  }
  std::shared_ptr<const std::string> body;
  const auto stored = ReadBody(owner, id, body);
  if (!stored.ok()) return stored.status();
  const absl::Status room = CheckRoom(owner, count);
  if (!room.ok()) return room;
  SessionHead head = stored->head;
  head.epoch = head.written_epoch = 0;
  head.lease.reset();
  head.created = options_.now();
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
  Touch(owner, id, *stored);
  return forks;
}

absl::Status Sessions::Delete(const std::string& owner, const std::string& id) {
  for (int tries = 0; tries < kMaxTries; ++tries) {
    const auto stored = ReadStored(owner, id);
    if (!stored.ok()) return stored.status();
    if (stored->head.IsHeld(options_.now())) {
      return InUse(id, *stored->head.lease);
    }
    const absl::Status deleted =
        store_.Delete(NameOf(owner, id), stored->version);
    if (absl::IsAborted(deleted)) continue;
    if (!deleted.ok()) return Told(deleted, id);
    cache_.Drop(stored->head.snapshot);  // forks of it read it again
    counts_.Remove(owner, 1);
    return absl::OkStatus();
  }
  return absl::AbortedError(
      absl::StrCat("session ", Quoted(id), " is changed all the time"));
}

absl::StatusOr<SessionInfo> Sessions::Pin(const std::string& owner,
                                          const std::string& id,
                                          absl::Duration time_to_live) {
  const absl::Status status = CheckTimeToLive(time_to_live);
  if (!status.ok()) return status;
  const auto pinned = Change(owner, id, [&](SessionHead& head) {
    head.time_to_live = time_to_live;
    head.Use(options_.now());
    return absl::OkStatus();
  });
  if (!pinned.ok()) return pinned.status();
  return InfoOf(id, *pinned);
}

absl::StatusOr<std::shared_ptr<const std::string>> Sessions::Export(
    const std::string& owner, const std::string& id) {
  std::shared_ptr<const std::string> body;
  const auto stored = ReadBody(owner, id, body);
  if (!stored.ok()) return stored.status();
  Touch(owner, id, *stored);
  return body;
}

absl::StatusOr<SessionInfo> Sessions::Import(const std::string& owner,
                                             std::string bytes) {
  const auto body = MakeBody(std::move(bytes));
  auto snapshot = codec_.Decode(*body);
  if (!snapshot.ok()) return snapshot.status();
  const absl::Status room = CheckRoom(owner, 1);
  if (!room.ok()) return room;
  SessionHead head = NewHead(**snapshot, options_.time_to_live);
  const std::string name = head.snapshot;
  auto info = Add(owner, std::move(head), body);
  if (info.ok()) cache_.Put(name, *std::move(snapshot));
  return info;
}

Sessions::Stats Sessions::stats() const {
  const SnapshotCache::Stats cache = cache_.stats();
  MutexLock lock(&mutex_);
  Stats stats = stats_;
  stats.cached_sessions = cache.snapshots;
  stats.cached_bytes = cache.bytes;
  stats.cache_hits = cache.hits;
  stats.cache_misses = cache.misses;
  return stats;
}

absl::StatusOr<Sessions::Stored> Sessions::ReadStored(const std::string& owner,
                                                      const std::string& id) {
  if (!IsId(id)) return NoSuchSession(id);
  const auto found = store_.GetHead(NameOf(owner, id));
  if (!found.ok()) return Told(found.status(), id);
  auto head = ReadSessionHead(found->head);
  if (!head.ok()) return Told(head.status(), id);
  if (head->owner != owner || head->expires <= options_.now()) {
    return NoSuchSession(id);
  }
  return Stored{*std::move(head), found->version, found->body_bytes};
}

absl::StatusOr<Sessions::Stored> Sessions::ReadBody(
    const std::string& owner, const std::string& id,
    std::shared_ptr<const std::string>& body) {
  if (!IsId(id)) return NoSuchSession(id);
  auto found = store_.Get(NameOf(owner, id));
  if (!found.ok()) return Told(found.status(), id);
  auto head = ReadSessionHead(found->blob.head);
  if (!head.ok()) return Told(head.status(), id);
  if (head->owner != owner || head->expires <= options_.now()) {
    return NoSuchSession(id);
  }
  body = std::move(found->blob.body);
  return Stored{*std::move(head), found->version,
                static_cast<int64_t>(body->size())};
}

absl::StatusOr<Sessions::Stored> Sessions::Change(const std::string& owner,
                                                  const std::string& id,
                                                  const Edit& edit) {
  for (int tries = 0; tries < kMaxTries; ++tries) {
    auto stored = ReadStored(owner, id);
    if (!stored.ok()) return stored.status();
    const absl::Status edited = edit(stored->head);
    if (!edited.ok()) return edited;
    const auto version =
        store_.PutHead(NameOf(owner, id), WriteSessionHead(stored->head),
                       stored->version, stored->head.expires);
    if (absl::IsAborted(version.status())) continue;
    if (!version.ok()) return Told(version.status(), id);
    stored->version = *version;
    return stored;
  }
  return absl::AbortedError(
      absl::StrCat("session ", Quoted(id), " is changed all the time"));
}

absl::StatusOr<SessionInfo> Sessions::Add(
    const std::string& owner, SessionHead head,
    std::shared_ptr<const std::string> body) {
  const std::string id = absl::BytesToHexString(RandomBytes());
  head.owner = owner;
  const auto bytes = static_cast<int64_t>(body->size());
  const auto version =
      store_.Put(NameOf(owner, id), {WriteSessionHead(head), std::move(body)},
                 /*expected=*/0, head.expires);
  if (!version.ok()) {
    counts_.Remove(owner, 1);
    return Told(version.status(), id);
  }
  MutexLock lock(&mutex_);
  ++stats_.created;
  return InfoOf(id, {std::move(head), *version, bytes});
}

absl::StatusOr<std::shared_ptr<const Snapshot>> Sessions::ReadSnapshot(
    const std::string& owner, const std::string& id, const Stored& stored,
    SnapshotCache::Use use) {
  auto cached = cache_.Get(stored.head.snapshot, use);
  if (cached != nullptr) return cached;
  std::shared_ptr<const std::string> body;
  const auto now = ReadBody(owner, id, body);
  if (!now.ok()) return now.status();
  if (now->head.snapshot != stored.head.snapshot) {
    return absl::AbortedError(
        absl::StrCat("session ", Quoted(id), " has just been written"));
  }
  auto snapshot = codec_.Decode(*body);
  if (!snapshot.ok()) return Told(snapshot.status(), id);
  if (use == SnapshotCache::Use::kAgain) {
    cache_.Put(stored.head.snapshot, *snapshot);
  }
  return snapshot;
}

void Sessions::Touch(const std::string& owner, const std::string& id,
                     const Stored& stored) {
  // Reading is not to become writing: so much earlier it may expire.
  const absl::Duration late = options_.now() - stored.head.used;
  if (late < std::min(stored.head.time_to_live / 16, absl::Minutes(1))) return;
  (void)Change(owner, id, [&](SessionHead& head) {
    head.Use(options_.now());
    return absl::OkStatus();
  });
}

absl::Status Sessions::CheckRoom(const std::string& owner, int64_t count) {
  return counts_.Add(
      owner, count, options_.now(), [&]() -> absl::StatusOr<int64_t> {
        int64_t sessions = 0;
        std::string from;
        do {
          const auto page = store_.List(FolderOf(owner), from, kPageEntries);
          if (!page.ok()) return Told(page.status(), "");
          sessions += static_cast<int64_t>(page->entries.size());
          from = page->next;
        } while (!from.empty());
        return sessions;
      });
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

SessionHead Sessions::NewHead(const Snapshot& snapshot,
                              absl::Duration time_to_live) {
  SessionHead head;
  head.snapshot = RandomBytes();
  head.num_tokens = snapshot.num_tokens();
  head.num_pending = static_cast<int64_t>(snapshot.pending.size());
  head.time_to_live = time_to_live;
  head.created = options_.now();
  head.Use(head.created);
  return head;
}

SessionInfo Sessions::InfoOf(const std::string& id,
                             const Stored& stored) const {
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
  info.in_use = head.IsHeld(options_.now());
  info.last_request = head.last_request;
  return info;
}

absl::Status Sessions::Told(const absl::Status& status, const std::string& id) {
  if (absl::IsNotFound(status)) return NoSuchSession(id);
  if (absl::IsInvalidArgument(status)) return status;
  if (!absl::IsFailedPrecondition(status)) {
    MutexLock lock(&mutex_);
    ++stats_.store_errors;
  }
  if (id.empty()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("session ", Quoted(id), ": ",
                                   std::string(status.message())));
}

bool Sessions::StopHolding(const Held& held) {
  MutexLock lock(&mutex_);
  const auto found = held_.find(held.id);
  if (found == held_.end() || found->second.epoch != held.epoch) return false;
  held_.erase(found);
  return true;
}

void Sessions::Renew(const Held& held) {
  const absl::Time now = options_.now();
  const auto renewed = Change(held.owner, held.id, [&](SessionHead& head) {
    if (!IsClaimed(head, held.epoch)) return absl::AbortedError("lost");
    head.lease->ends = now + options_.lease;
    head.Use(now);
    return absl::OkStatus();
  });
  const bool lost =
      absl::IsAborted(renewed.status()) || absl::IsNotFound(renewed.status());
  if (!lost || !StopHolding(held)) return;
  MutexLock lock(&mutex_);
  ++stats_.lost_claims;
}

void Sessions::RenewAll() {
  std::vector<Held> all;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, held] : held_) all.push_back(held);
  }
  for (const Held& held : all) Renew(held);
}

void Sessions::Sweep() {
  const absl::Status swept = store_.Sweep();
  if (!swept.ok()) (void)Told(swept, "");
}

void Sessions::Repeat(absl::Duration period, void (Sessions::*body)()) {
  for (;;) {
    const auto next =
        std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(period);
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && std::chrono::steady_clock::now() < next) {
        stopped_.WaitUntil(&mutex_, next);
      }
      if (stopping_) return;
    }
    (this->*body)();
  }
}

}  // namespace flash
