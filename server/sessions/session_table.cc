#include "server/sessions/session_table.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "server/model/digest.h"

namespace flash {
namespace {

constexpr size_t kIdBytes = 16;
constexpr int kPageEntries = 1000;

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

absl::Status NoSuchSession(const std::string& id) {
  return absl::NotFoundError(
      absl::StrCat("there is no session ", QuotedId(id)));
}

}  // namespace

std::string QuotedId(const std::string& id) {
  return absl::StrCat("\"", absl::CHexEscape(id.substr(0, 64)), "\"");
}

absl::Status ChangedWithoutEnd(const std::string& id) {
  return absl::AbortedError(
      absl::StrCat("session ", QuotedId(id), " is changed all the time"));
}

SessionTable::SessionTable(BlobStore* store, const SnapshotCodec* codec,
                           int64_t cache_bytes, std::function<absl::Time()> now)
    : store_(*store),
      codec_(*codec),
      cache_(cache_bytes),
      now_(std::move(now)) {}

absl::StatusOr<SessionTable::Stored> SessionTable::Read(
    const std::string& owner, const std::string& id) {
  if (!IsId(id)) return NoSuchSession(id);
  const auto found = store_.GetHead(NameOf(owner, id));
  if (!found.ok()) return Told(found.status(), id);
  auto head = ReadSessionHead(found->head);
  if (!head.ok()) return Told(head.status(), id);
  if (head->owner != owner || head->expires <= now()) {
    return NoSuchSession(id);
  }
  return Stored{*std::move(head), found->version, found->body_bytes};
}

absl::StatusOr<SessionTable::Stored> SessionTable::ReadBody(
    const std::string& owner, const std::string& id,
    std::shared_ptr<const std::string>& body) {
  if (!IsId(id)) return NoSuchSession(id);
  auto found = store_.Get(NameOf(owner, id));
  if (!found.ok()) return Told(found.status(), id);
  auto head = ReadSessionHead(found->blob.head);
  if (!head.ok()) return Told(head.status(), id);
  if (head->owner != owner || head->expires <= now()) {
    return NoSuchSession(id);
  }
  body = std::move(found->blob.body);
  return Stored{*std::move(head), found->version,
                static_cast<int64_t>(body->size())};
}

absl::StatusOr<std::shared_ptr<const Snapshot>> SessionTable::ReadSnapshot(
    const std::string& owner, const std::string& id, const Stored& stored,
    SnapshotCache::Use use) {
  auto cached = cache_.Get(stored.head.snapshot, use);
  if (cached != nullptr) return cached;
  std::shared_ptr<const std::string> body;
  const auto current = ReadBody(owner, id, body);
  if (!current.ok()) return current.status();
  if (current->head.snapshot != stored.head.snapshot) {
    return absl::AbortedError(
        absl::StrCat("session ", QuotedId(id), " has just been written"));
  }
  auto snapshot = codec_.Decode(*body);
  if (!snapshot.ok()) return Told(snapshot.status(), id);
  if (use == SnapshotCache::Use::kAgain) {
    cache_.Put(stored.head.snapshot, *snapshot);
  }
  return snapshot;
}

absl::StatusOr<SessionTable::Stored> SessionTable::Change(
    const std::string& owner, const std::string& id, const Edit& edit) {
  for (int tries = 0; tries < kMaxSessionTries; ++tries) {
    auto stored = Read(owner, id);
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
  return ChangedWithoutEnd(id);
}

absl::Status SessionTable::Write(const std::string& owner,
                                 const std::string& id,
                                 std::shared_ptr<const std::string> body,
                                 Stored& stored) {
  const auto bytes = static_cast<int64_t>(body->size());
  const auto version = store_.Put(
      NameOf(owner, id), {WriteSessionHead(stored.head), std::move(body)},
      stored.version, stored.head.expires);
  if (absl::IsAborted(version.status())) return version.status();
  if (!version.ok()) return Told(version.status(), id);
  stored.version = *version;
  stored.bytes = bytes;
  return absl::OkStatus();
}

absl::Status SessionTable::Delete(const std::string& owner,
                                  const std::string& id, const Stored& stored) {
  const absl::Status deleted = store_.Delete(NameOf(owner, id), stored.version);
  if (absl::IsAborted(deleted)) return deleted;
  if (!deleted.ok()) return Told(deleted, id);
  cache_.Drop(stored.head.snapshot);  // forks of it read it again
  return absl::OkStatus();
}

absl::StatusOr<SessionTable::Page> SessionTable::List(const std::string& owner,
                                                      const std::string& from,
                                                      int limit) {
  const std::string folder = FolderOf(owner);
  const auto listed = store_.List(folder, from, limit);
  if (!listed.ok()) return Told(listed.status(), "");
  Page page;
  page.next = listed->next;
  for (const BlobStore::Entry& entry : listed->entries) {
    auto head = ReadSessionHead(entry.head.head);
    if (!head.ok() || head->owner != owner || head->expires <= now()) continue;
    page.sessions.push_back(
        {entry.name.substr(folder.size() + 1),
         {*std::move(head), entry.head.version, entry.head.body_bytes}});
  }
  return page;
}

absl::StatusOr<int64_t> SessionTable::Count(const std::string& owner) {
  int64_t sessions = 0;
  std::string from;
  do {
    const auto page = store_.List(FolderOf(owner), from, kPageEntries);
    if (!page.ok()) return Told(page.status(), "");
    sessions += static_cast<int64_t>(page->entries.size());
    from = page->next;
  } while (!from.empty());
  return sessions;
}

void SessionTable::Touch(const std::string& owner, const std::string& id,
                         const Stored& stored) {
  // Reading is not to become writing: so much earlier it may expire.
  const absl::Duration late = now() - stored.head.used;
  if (late < std::min(stored.head.time_to_live / 16, absl::Minutes(1))) return;
  (void)Change(owner, id, [&](SessionHead& head) {
    head.Use(now());
    return absl::OkStatus();
  });
}

void SessionTable::Sweep() {
  const absl::Status swept = store_.Sweep();
  if (!swept.ok()) (void)Told(swept, "");
}

std::string SessionTable::NewId() {
  return absl::BytesToHexString(RandomBytes());
}

SessionHead SessionTable::NewHead(const Snapshot& snapshot,
                                  absl::Duration time_to_live) const {
  SessionHead head;
  head.snapshot = RandomBytes();
  head.num_tokens = snapshot.num_tokens();
  head.num_pending = static_cast<int64_t>(snapshot.pending.size());
  head.time_to_live = time_to_live;
  head.created = now();
  head.Use(head.created);
  return head;
}

absl::Status SessionTable::Told(const absl::Status& status,
                                const std::string& id) {
  if (absl::IsNotFound(status)) return NoSuchSession(id);
  if (absl::IsInvalidArgument(status)) return status;
  if (!absl::IsFailedPrecondition(status)) ++num_store_errors_;
  if (id.empty()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("session ", QuotedId(id), ": ",
                                   std::string(status.message())));
}

}  // namespace flash
