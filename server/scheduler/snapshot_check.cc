#include "server/scheduler/snapshot_check.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/model/sampling.h"
#include "server/tokenizer/detokenizer.h"

namespace flash {
namespace {

template <typename... Args>
absl::Status Wrong(const Args&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

absl::Status CheckPosition(const Snapshot& snapshot) {
  if (snapshot.position < 0 ||
      snapshot.position > std::numeric_limits<int64_t>::max() / 2) {
    return Wrong("its position is ", snapshot.position);
  }
  if ((snapshot.position == 0) != (snapshot.state == nullptr)) {
    return Wrong("at position ", snapshot.position, " it has ",
                 snapshot.state == nullptr ? "no" : "a", " state");
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const Snapshot& snapshot, int64_t num_ids) {
  const std::vector<int32_t>& pending = snapshot.pending;
  const std::vector<RecentToken>& recent = snapshot.recent;
  const size_t most = kMaxPenaltyWindow;
  if (pending.size() > most) {
    return Wrong("it has ", pending.size(), " pending tokens; the most is ",
                 most);
  }
  if (recent.size() > most ||
      static_cast<int64_t>(recent.size()) > snapshot.num_tokens()) {
    return Wrong("it has ", recent.size(), " recent tokens of ",
                 snapshot.num_tokens(), "; the most is ", most);
  }
  const auto is_id = [&](int64_t id) { return id >= 0 && id < num_ids; };
  for (const int32_t id : pending) {
    if (!is_id(id)) return Wrong("token id ", id);
  }
  for (const RecentToken& token : recent) {
    if (!is_id(token.id)) return Wrong("token id ", token.id);
  }
  // The pending tokens are the text's last ones.
  const bool ends_with_pending =
      recent.size() >= pending.size() &&
      std::equal(
          pending.begin(), pending.end(), recent.end() - pending.size(),
          [](int32_t id, const RecentToken& token) { return token.id == id; });
  if (!ends_with_pending) return Wrong("its pending and recent tokens differ");
  return absl::OkStatus();
}

absl::Status CheckText(const Snapshot& snapshot) {
  Utf8Assembler assembler;
  std::string text;
  assembler.Push(snapshot.incomplete, text);
  if (!text.empty() || assembler.pending() != snapshot.incomplete) {
    return Wrong("its incomplete character is none");
  }
  if (snapshot.held.size() > kMaxHeldBytes) {
    return Wrong("it holds ", snapshot.held.size(),
                 " bytes of text back; the most is ", kMaxHeldBytes);
  }
  if (!IsValidUtf8(snapshot.held)) {
    return Wrong("the text that it holds back is not valid UTF-8");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSnapshot(const Snapshot& snapshot, int64_t num_ids) {
  absl::Status status = CheckPosition(snapshot);
  if (status.ok()) status = CheckTokens(snapshot, num_ids);
  if (status.ok()) status = CheckText(snapshot);
  return status;
}

}  // namespace flash
