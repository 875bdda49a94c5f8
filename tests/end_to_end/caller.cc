#include "tests/end_to_end/caller.h"

#include <chrono>
#include <thread>

namespace flash {

void Heard::Take(const v1::GenerateEvent& event) {
  if (event.has_accepted()) {
    seed = event.accepted().seed();
    session_epoch = event.accepted().session_epoch();
  }
  if (event.has_token()) {
    const v1::TokenOutput& token = event.token();
    in_order &=
        token.token_index() == ids.size() && token.text_offset() == text.size();
    ids.push_back(token.token().id());
    logprobs.push_back(token.token().logprob());
    text += token.text();
    text_sizes.push_back(text.size());
  }
  if (event.has_finished()) {
    in_order &= event.finished().text_offset() == text.size();
    text += event.finished().text();
    reason = event.finished().reason();
    usage = event.usage();
    session = event.finished().session();
  }
}

Caller::Caller(const std::string& address) {
  grpc::ChannelArguments arguments;
  // A connection of its own, not one shared with every other caller.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  channel_ = grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), arguments);
  inference_ = v1::Inference::NewStub(channel_);
  control_ = v1::Control::NewStub(channel_);
  sessions_ = v1::Sessions::NewStub(channel_);
}

Heard Caller::Generate(const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  const auto reader = inference_->Generate(&context, request);
  Heard heard;
  v1::GenerateEvent event;
  while (reader->Read(&event)) heard.Take(event);
  heard.status = reader->Finish();
  return heard;
}

std::string Caller::Export(const std::string& id) {
  v1::ExportSessionRequest request;
  request.set_id(id);
  grpc::ClientContext context;
  const auto reader = sessions_->Export(&context, request);
  std::string bytes;
  v1::SnapshotChunk chunk;
  while (reader->Read(&chunk)) bytes += chunk.data();
  return reader->Finish().ok() ? bytes : "";
}

std::string Caller::Import(const std::string& bytes) {
  constexpr size_t kChunkBytes = 256 << 10;
  grpc::ClientContext context;
  v1::Session session;
  const auto writer = sessions_->Import(&context, &session);
  for (size_t begin = 0; begin < bytes.size(); begin += kChunkBytes) {
    v1::SnapshotChunk chunk;
    chunk.set_data(bytes.substr(begin, kChunkBytes));
    if (!writer->Write(chunk)) break;
  }
  writer->WritesDone();
  return writer->Finish().ok() ? session.id() : "";
}

std::vector<std::string> Caller::Fork(const std::string& id, uint32_t count) {
  v1::ForkSessionRequest request;
  request.set_id(id);
  request.set_count(count);
  grpc::ClientContext context;
  v1::ForkSessionResult result;
  std::vector<std::string> ids;
  if (!sessions_->Fork(&context, request, &result).ok()) return ids;
  for (const v1::Session& fork : result.sessions()) ids.push_back(fork.id());
  return ids;
}

v1::ServerInfo Caller::Info() {
  grpc::ClientContext context;
  v1::ServerInfo info;
  control_->GetServerInfo(&context, {}, &info);
  return info;
}

bool Caller::WaitFor(const std::function<bool(const v1::Load&)>& wanted,
                     int seconds) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < deadline) {
    if (wanted(Load())) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

bool Caller::WaitUntilIdle(int num_slots, int seconds) {
  return WaitFor(
      [num_slots](const v1::Load& load) {
        return static_cast<int>(load.slots_free()) == num_slots &&
               load.requests_queued() == 0 && load.requests_running() == 0;
      },
      seconds);
}

}  // namespace flash
