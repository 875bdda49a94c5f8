#include "client/session_commands.h"

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/client_program.h"
#include "client/complain.h"
#include "client/error_text.h"
#include "client/session_output.h"
#include "client/snapshot_file.h"

namespace flash {
namespace {

constexpr size_t kBytesBetweenProgress = size_t{1} << 20;
constexpr uint32_t kPageSize = 1000;

struct Parts {
  const ClientConfig& config;
  FlashClient& client;
  CancellableCall& call;
};

std::string Text(const Parts& parts, const std::vector<v1::Session>& sessions) {
  if (parts.config.output == OutputFormat::kText) return SessionsText(sessions);
  std::string lines;
  for (const v1::Session& session : sessions) lines += SessionJson(session);
  return lines;
}

int Show(const Parts& parts, const grpc::Status& status,
         const std::vector<v1::Session>& sessions) {
  return status.ok() ? Print(Text(parts, sessions)) : Fail(status);
}

int Save(const Parts& parts) {
  const auto request = SaveSessionRequestFromFlags();
  if (!request.ok()) return Complain(kClientName, request.status());
  v1::Session session;
  const grpc::Status status =
      parts.client.SaveSession(*request, parts.call, session);
  return Show(parts, status, {session});
}

int Get(const Parts& parts) {
  const auto id = SessionFromFlags();
  if (!id.ok()) return Complain(kClientName, id.status());
  v1::Session session;
  const grpc::Status status = parts.client.GetSession(*id, parts.call, session);
  return Show(parts, status, {session});
}

int List(const Parts& parts) {
  v1::ListSessionsRequest request;
  request.set_page_size(kPageSize);
  std::vector<v1::Session> sessions;
  while (true) {
    v1::ListSessionsResult result;
    const grpc::Status status =
        parts.client.ListSessions(request, parts.call, result);
    if (!status.ok()) return Fail(status);
    for (v1::Session& session : *result.mutable_sessions()) {
      sessions.push_back(std::move(session));
    }
    if (result.next_page().empty()) break;
    request.set_page(result.next_page());
  }
  return Print(Text(parts, sessions));
}

int Fork(const Parts& parts) {
  const auto request = ForkSessionRequestFromFlags();
  if (!request.ok()) return Complain(kClientName, request.status());
  v1::ForkSessionResult result;
  const grpc::Status status =
      parts.client.ForkSession(*request, parts.call, result);
  return Show(parts, status,
              {result.sessions().begin(), result.sessions().end()});
}

// Bytes so far, for who waits at a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(const char* what) : what_(what) {}
  ~ProgressLine() {
    if (shown_) std::fputc('\n', stderr);
  }

  void Add(size_t num_bytes) {
    bytes_ += num_bytes;
    if (bytes_ < next_ || isatty(STDERR_FILENO) == 0) return;
    next_ = bytes_ + kBytesBetweenProgress;
    std::fprintf(stderr, "\r%s %.1f MiB", what_,
                 static_cast<double>(bytes_) / (1 << 20));
    shown_ = true;
  }

  size_t bytes() const { return bytes_; }

 private:
  const char* const what_;
  size_t bytes_ = 0;
  size_t next_ = kBytesBetweenProgress;
  bool shown_ = false;
};

int Export(const Parts& parts) {
  const auto id = SessionFromFlags();
  if (!id.ok()) return Complain(kClientName, id.status());
  const auto path = FileFromFlags();
  if (!path.ok()) return Complain(kClientName, path.status());
  SnapshotFile file(*path);
  absl::Status written = file.Open();
  if (!written.ok()) return Complain(kClientName, written);
  ProgressLine progress("written:");
  const grpc::Status status =
      parts.client.ExportSession(*id, parts.call, [&](const std::string& data) {
        if (written.ok()) written = file.Write(data);
        progress.Add(data.size());
        return written.ok();
      });
  if (written.ok() && status.ok()) written = file.Commit();
  if (!written.ok()) return Complain(kClientName, written);
  if (!status.ok()) return Fail(status);
  if (*path == "-") return 0;
  if (parts.config.output == OutputFormat::kText) {
    return Print(
        absl::StrCat("wrote ", progress.bytes(), " bytes to ", *path, "\n"));
  }
  return Print(absl::StrCat("{\"num_bytes\":", progress.bytes(), "}\n"));
}

int Import(const Parts& parts) {
  const auto path = FileFromFlags();
  if (!path.ok()) return Complain(kClientName, path.status());
  SnapshotSource source(*path);
  const absl::Status opened = source.Open();
  if (!opened.ok()) return Complain(kClientName, opened);
  ProgressLine progress("read:");
  v1::Session session;
  const grpc::Status status = parts.client.ImportSession(
      [&] {
        std::string data = source.Next(kMaxSnapshotChunk);
        // What was read in part only must not be taken for the whole.
        if (!source.status().ok()) parts.call.Cancel();
        progress.Add(data.size());
        return data;
      },
      parts.call, session);
  if (!source.status().ok()) return Complain(kClientName, source.status());
  return Show(parts, status, {session});
}

int Delete(const Parts& parts) {
  const auto id = SessionFromFlags();
  if (!id.ok()) return Complain(kClientName, id.status());
  const grpc::Status status = parts.client.DeleteSession(*id, parts.call);
  return status.ok() ? 0 : Fail(status);
}

int Pin(const Parts& parts) {
  const auto request = PinSessionRequestFromFlags();
  if (!request.ok()) return Complain(kClientName, request.status());
  v1::Session session;
  const grpc::Status status =
      parts.client.PinSession(*request, parts.call, session);
  return Show(parts, status, {session});
}

}  // namespace

int RunSessionCommand(const std::string& command, const ClientConfig& config,
                      FlashClient& client, CancellableCall& call) {
  static const auto& commands =
      *new std::map<std::string, int (*)(const Parts&)>{
          {"session save", Save},     {"session get", Get},
          {"session list", List},     {"session fork", Fork},
          {"session export", Export}, {"session import", Import},
          {"session delete", Delete}, {"session pin", Pin}};
  return commands.at(command)({config, client, call});
}

}  // namespace flash
