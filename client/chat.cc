#include "client/chat.h"

#include <utility>

namespace flash {

grpc::Status Chat::Say(
    const std::string& line, CancellableCall& call,
    const std::function<void(v1::GenerateEvent&)>& on_event,
    const std::function<void(const Resumption&)>& on_resumed) {
  const bool begins = settings_.session.empty();
  if (begins && line.empty()) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                        "there is no text yet that could go on");
  }
  v1::GenerateRequest request = settings_.request;
  request.set_save_session(true);
  if (!begins) request.mutable_session()->set_id(settings_.session);
  if (!line.empty()) {
    const std::string& prefix = settings_.prefix;
    const bool drops_line_end = begins && !prefix.empty() && prefix[0] == '\n';
    request.set_text(prefix.substr(drops_line_end ? 1 : 0) + line +
                     settings_.suffix);
  }
  std::string session;
  const grpc::Status status = client_.Generate(
      request, call,
      [&](v1::GenerateEvent& event) {
        if (event.has_finished()) session = event.finished().session().id();
        on_event(event);
      },
      on_resumed);
  if (status.ok()) settings_.session = session;
  return status;
}

}  // namespace flash
