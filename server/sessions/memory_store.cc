#include "server/sessions/memory_store.h"

#include <iterator>
#include <utility>
#include <vector>

#include "server/sessions/blob_name.h"
#include "server/sessions/body.h"
#include "server/sessions/store_errors.h"

namespace flash {
namespace {

int64_t NumBytes(const Blob& blob) {
  return static_cast<int64_t>(blob.head.size() + blob.body->size());
}

BlobStore::Head HeadOf(const Blob& blob, int64_t version) {
  return {blob.head, version, static_cast<int64_t>(blob.body->size())};
}

}  // namespace

absl::StatusOr<BlobStore::Found> MemoryStore::Get(std::string_view name) {
  if (absl::Status status = CheckBlobName(name); !status.ok()) return status;
  MutexLock lock(&mutex_);
  const auto it = Find(name);
  if (it == blobs_.end()) return NoSuchBlob(name);
  return Found{it->second.blob, it->second.version};
}

absl::StatusOr<BlobStore::Head> MemoryStore::GetHead(std::string_view name) {
  if (absl::Status status = CheckBlobName(name); !status.ok()) return status;
  MutexLock lock(&mutex_);
  const auto it = Find(name);
  if (it == blobs_.end()) return NoSuchBlob(name);
  return HeadOf(it->second.blob, it->second.version);
}

absl::StatusOr<int64_t> MemoryStore::Put(std::string_view name,
                                         const Blob& blob,
                                         std::optional<int64_t> expected,
                                         absl::Time expires) {
  if (absl::Status status = CheckBlobName(name); !status.ok()) return status;
  // Before the lock: it may be a copy.
  Kept kept{{blob.head, WipedBody(blob.body)}, 0, expires};
  // What is replaced is overwritten when this leaves, after the lock.
  Kept replaced;
  MutexLock lock(&mutex_);
  auto it = blobs_.find(name);  // perhaps one that has expired
  const int64_t found = Find(name) == blobs_.end() ? 0 : it->second.version;
  if (expected && *expected != found) {
    return OtherVersion(name, *expected, found);
  }
  const int64_t added =
      NumBytes(blob) - (it == blobs_.end() ? 0 : NumBytes(it->second.blob));
  if (absl::Status status = CheckRoom(added); !status.ok()) return status;
  if (it == blobs_.end()) it = blobs_.try_emplace(std::string(name)).first;
  bytes_ += added;
  kept.version = ++last_version_;
  replaced = std::exchange(it->second, std::move(kept));
  return last_version_;
}

absl::StatusOr<int64_t> MemoryStore::PutHead(std::string_view name,
                                             std::string_view head,
                                             int64_t expected,
                                             absl::Time expires) {
  if (absl::Status status = CheckBlobName(name); !status.ok()) return status;
  MutexLock lock(&mutex_);
  const auto it = Find(name);
  if (it == blobs_.end()) return NoSuchBlob(name);
  Kept& kept = it->second;
  if (expected != kept.version) {
    return OtherVersion(name, expected, kept.version);
  }
  bytes_ -= NumBytes(kept.blob);
  kept.blob.head = head;
  bytes_ += NumBytes(kept.blob);
  kept.expires = expires;
  return kept.version = ++last_version_;
}

absl::Status MemoryStore::Delete(std::string_view name,
                                 std::optional<int64_t> expected) {
  if (absl::Status status = CheckBlobName(name); !status.ok()) return status;
  Blobs::node_type deleted;  // overwritten when this leaves, after the lock
  MutexLock lock(&mutex_);
  const auto it = Find(name);
  if (it == blobs_.end()) return NoSuchBlob(name);
  if (expected && *expected != it->second.version) {
    return OtherVersion(name, *expected, it->second.version);
  }
  deleted = Take(it);
  return absl::OkStatus();
}

absl::StatusOr<BlobStore::Page> MemoryStore::List(std::string_view folder,
                                                  std::string_view from,
                                                  int limit) {
  if (absl::Status status = CheckFolderName(folder); !status.ok()) {
    return status;
  }
  const std::string begin = std::string(folder) + "/";
  if (!from.empty() && !from.starts_with(begin)) return NoSuchPage(from);
  const absl::Time now = absl::Now();
  Page page;
  MutexLock lock(&mutex_);
  for (auto it =
           blobs_.lower_bound(from.empty() ? std::string_view(begin) : from);
       it != blobs_.end() && it->first.starts_with(begin); ++it) {
    const auto& [name, kept] = *it;
    if (kept.expires <= now) continue;
    if (static_cast<int>(page.entries.size()) >= limit) {
      page.next = name;
      break;
    }
    page.entries.push_back({name, HeadOf(kept.blob, kept.version)});
  }
  return page;
}

absl::Status MemoryStore::Sweep() {
  const absl::Time now = absl::Now();
  std::vector<Blobs::node_type> expired;  // as in Delete()
  MutexLock lock(&mutex_);
  for (auto it = blobs_.begin(); it != blobs_.end();) {
    const auto next = std::next(it);
    if (it->second.expires <= now) expired.push_back(Take(it));
    it = next;
  }
  return absl::OkStatus();
}

MemoryStore::Blobs::iterator MemoryStore::Find(std::string_view name) {
  const auto it = blobs_.find(name);
  // What has expired is not there; Sweep() takes it out.
  const bool is_there = it != blobs_.end() && it->second.expires > absl::Now();
  return is_there ? it : blobs_.end();
}

absl::Status MemoryStore::CheckRoom(int64_t added_bytes) const {
  if (added_bytes <= 0 || added_bytes <= max_bytes_ - bytes_) {
    return absl::OkStatus();
  }
  return StoreIsFull(Describe(), max_bytes_, bytes_, added_bytes);
}

MemoryStore::Blobs::node_type MemoryStore::Take(Blobs::iterator blob) {
  bytes_ -= NumBytes(blob->second.blob);
  return blobs_.extract(blob);
}

}  // namespace flash
