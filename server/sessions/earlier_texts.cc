#include "server/sessions/earlier_texts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/model/digest.h"

namespace flash {
namespace {

// More than any server writes while one is kept; what is forgotten here expires
// all the same.
constexpr size_t kMaxRemembered = 100'000;

std::string NameOf(const std::string& owner, const std::string& id) {
  return absl::StrCat("earlier-", HexDigestOf(owner), "/", id);
}

}  // namespace

void EarlierTexts::Keep(const std::string& owner, const std::string& id,
                        SessionHead head,
                        std::shared_ptr<const std::string> body) {
  head.owner = owner;
  head.expires = table_.now() + time_;
  Kept kept{.name = NameOf(owner, id),
            .bytes = static_cast<int64_t>(body->size()),
            .expires = head.expires};
  const Blob blob{WriteSessionHead(head), std::move(body)};
  const auto put = [&] {
    return table_.store().Put(kept.name, blob, std::nullopt, head.expires);
  };
  auto version = put();
  if (absl::IsResourceExhausted(version.status()) && MakeRoom(kept.bytes)) {
    version = put();
  }
  if (!version.ok()) return;
  kept.version = *version;
  Remember(std::move(kept));
}

void EarlierTexts::KeepOn(const std::string& owner, const std::string& id) {
  const std::string name = NameOf(owner, id);
  const auto found = table_.store().GetHead(name);
  if (!found.ok()) return;
  auto head = ReadSessionHead(found->head);
  if (!head.ok() || head->owner != owner) return;
  head->expires = table_.now() + time_;
  const auto version = table_.store().PutHead(name, WriteSessionHead(*head),
                                              found->version, head->expires);
  if (version.ok()) {
    Remember({name, *version, found->body_bytes, head->expires});
  }
}

absl::StatusOr<std::shared_ptr<const Snapshot>> EarlierTexts::Read(
    const std::string& owner, const std::string& id, const SessionHead& head) {
  const auto found = table_.store().Get(NameOf(owner, id));
  if (!found.ok()) return table_.Told(found.status(), id);
  const auto earlier = ReadSessionHead(found->blob.head);
  if (!earlier.ok()) return table_.Told(earlier.status(), id);
  // Any other chain is an older answer's: what came before the last one was not
  // to be kept.
  if (earlier->owner != owner || earlier->expires <= table_.now() ||
      earlier->first_epoch != head.written_first_epoch) {
    return absl::NotFoundError("there is none");
  }
  auto snapshot = table_.codec().Decode(*found->blob.body);
  if (!snapshot.ok()) return table_.Told(snapshot.status(), id);
  return snapshot;
}

void EarlierTexts::Forget(const std::string& owner, const std::string& id) {
  (void)table_.store().Delete(NameOf(owner, id), std::nullopt);
}

bool EarlierTexts::DropExpired() {
  {
    MutexLock lock(&mutex_);
    const bool front_expired =
        !kept_.empty() && kept_.front().expires <= table_.now();
    if (!front_expired && !some_expired_) return false;
    some_expired_ = false;
  }
  table_.Sweep();
  return true;
}

absl::Status EarlierTexts::WithRoom(
    int64_t bytes, const std::function<absl::Status()>& write) {
  absl::Status status = write();
  // Others may take the room that is made.
  for (int tries = 0; tries < kMaxSessionTries; ++tries) {
    if (!absl::IsResourceExhausted(status) || !MakeRoom(bytes)) break;
    status = write();
  }
  return status;
}

bool EarlierTexts::MakeRoom(int64_t bytes) {
  int64_t freed = 0;
  bool any = DropExpired();
  while (freed < bytes) {
    Kept kept;
    {
      MutexLock lock(&mutex_);
      if (kept_.empty()) break;
      kept = std::move(kept_.front());
      kept_.pop_front();
    }
    // One that was written over since stands further behind.
    if (!table_.store().Delete(kept.name, kept.version).ok()) continue;
    any = true;
    freed += kept.bytes;
  }
  return any;
}

void EarlierTexts::Remember(Kept kept) {
  const absl::Time now = table_.now();
  MutexLock lock(&mutex_);
  while (!kept_.empty() &&
         (kept_.front().expires <= now || kept_.size() >= kMaxRemembered)) {
    some_expired_ = true;  // or will
    kept_.pop_front();
  }
  kept_.push_back(std::move(kept));
}

}  // namespace flash
