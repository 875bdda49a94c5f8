#include "server/sessions/session_counts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace flash {
namespace {

constexpr absl::Duration kGoodFor = absl::Minutes(10);
// Not for longer where somebody would be refused.
constexpr absl::Duration kGoodForRefusal = absl::Seconds(10);

// Owners come and go; what is known of them need not stay.
constexpr size_t kMaxOwners = 10000;

}  // namespace

absl::Status SessionCounts::Add(
    const std::string& owner, int64_t added, absl::Time now,
    const std::function<absl::StatusOr<int64_t>()>& count) {
  {
    MutexLock lock(&mutex_);
    const auto found = counts_.find(owner);
    if (found != counts_.end()) {
      Count& known = found->second;
      const bool fits = known.sessions + added <= most_;
      if (now - known.as_of < (fits ? kGoodFor : kGoodForRefusal)) {
        if (fits) {
          known.sessions += added;
          return absl::OkStatus();
        }
        return absl::ResourceExhaustedError(
            absl::StrCat("the caller has ", known.sessions,
                         " sessions; the most is ", most_));
      }
    }
  }
  const absl::StatusOr<int64_t> counted = count();
  if (!counted.ok()) return counted.status();
  {
    MutexLock lock(&mutex_);
    if (counts_.size() >= kMaxOwners) counts_.clear();
    counts_[owner] = {.sessions = *counted, .as_of = now};
  }
  return Add(owner, added, now, count);
}

void SessionCounts::Remove(const std::string& owner, int64_t removed) {
  MutexLock lock(&mutex_);
  const auto found = counts_.find(owner);
  if (found == counts_.end()) return;
  found->second.sessions =
      std::max<int64_t>(0, found->second.sessions - removed);
}

}  // namespace flash
