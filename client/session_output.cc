#include "client/session_output.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/message_json.h"

namespace flash {
namespace {

using Cells = std::vector<std::string>;

constexpr size_t kGap = 2;  // between two columns

std::string TimeText(uint64_t milliseconds) {
  if (milliseconds == 0) return "-";
  return absl::FormatTime(
      "%Y-%m-%d %H:%M:%S",
      absl::FromUnixMillis(static_cast<int64_t>(milliseconds)),
      absl::LocalTimeZone());
}

Cells CellsOf(const v1::Session& session) {
  return {session.id(),
          absl::StrCat(session.num_tokens()),
          absl::StrCat(session.num_bytes()),
          session.in_use() ? "yes" : "no",
          TimeText(session.created_ms()),
          TimeText(session.used_ms()),
          TimeText(session.expires_ms()),
          session.last_request_id().empty() ? "-" : session.last_request_id()};
}

}  // namespace

std::string SessionsText(const std::vector<v1::Session>& sessions) {
  std::vector<Cells> lines = {{"SESSION", "TOKENS", "BYTES", "IN USE",
                               "CREATED", "USED", "EXPIRES", "LAST REQUEST"}};
  for (const v1::Session& session : sessions) {
    lines.push_back(CellsOf(session));
  }
  std::vector<size_t> widths(lines[0].size(), 0);
  for (const Cells& cells : lines) {
    for (size_t i = 0; i < cells.size(); ++i) {
      widths[i] = std::max(widths[i], cells[i].size());
    }
  }
  std::string text;
  for (const Cells& cells : lines) {
    for (size_t i = 0; i + 1 < cells.size(); ++i) {
      text += cells[i];
      text.append(widths[i] - cells[i].size() + kGap, ' ');
    }
    text += cells.back() + "\n";
  }
  return text;
}

std::string SessionJson(const v1::Session& session) {
  return JsonLine(MessageJson(session)) + "\n";
}

}  // namespace flash
