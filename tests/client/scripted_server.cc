#include "tests/client/scripted_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace flash {
namespace {

constexpr uint64_t kDefaultSeed = 77;
constexpr uint64_t kDefaultMaxTokens = 12;
constexpr uint64_t kPromptTokens = 5;
constexpr char kPrompt[] = "The pr\u00f6mpt. ";

// Words of several lengths, with characters of several bytes.
std::string Word(uint32_t id) {
  static const char* const kWords[] = {"a",      " l\u00e9ger", "\u20ac",
                                       " text ", "\U0001f600!", ""};
  return kWords[id % 6];
}

uint32_t TokenId(uint64_t seed, uint32_t output, uint64_t index) {
  return static_cast<uint32_t>((seed * 31 + output * 7 + index) * 2654435761u %
                               1009);
}

// One output, whose text lags a token behind, as where text is held back.
class Output {
 public:
  Output(uint64_t seed, uint32_t index, uint64_t length)
      : index_(index), length_(length) {
    for (uint64_t i = 0; i < length; ++i)
      ids_.push_back(TokenId(seed, index, i));
  }

  v1::GenerateEvent Token(uint64_t i) const {
    v1::GenerateEvent event;
    v1::TokenOutput& token = *event.mutable_token();
    token.set_output_index(index_);
    token.set_token_index(i);
    token.mutable_token()->set_id(ids_[i]);
    token.set_text_offset(TextBefore(i).size());
    token.set_text(i == 0 ? "" : Word(ids_[i - 1]));
    return event;
  }

  v1::GenerateEvent Finished() const {
    v1::GenerateEvent event;
    v1::Finished& finished = *event.mutable_finished();
    finished.set_output_index(index_);
    finished.set_reason(v1::FINISH_REASON_MAX_TOKENS);
    finished.set_text_offset(TextBefore(length_).size());
    finished.set_text(length_ == 0 ? "" : Word(ids_[length_ - 1]));
    finished.set_num_tokens(length_);
    return event;
  }

  // What the tokens before token `i` have released.
  std::string TextBefore(uint64_t i) const {
    std::string text;
    for (uint64_t j = 0; j + 1 < i; ++j) text += Word(ids_[j]);
    return text;
  }

 private:
  const uint32_t index_;
  const uint64_t length_;
  std::vector<uint32_t> ids_;
};

v1::GenerateEvent AcceptedEvent(const v1::GenerateRequest& request,
                                const Script& script) {
  v1::GenerateEvent event;
  v1::Accepted& accepted = *event.mutable_accepted();
  accepted.set_request_id(request.has_request_id() ? request.request_id()
                                                   : "made-here");
  accepted.set_model("scripted");
  accepted.set_seed(request.sampling().has_seed() ? request.sampling().seed()
                                                  : kDefaultSeed);
  accepted.set_prompt_tokens(kPromptTokens);
  accepted.set_max_tokens(request.stopping().has_max_tokens()
                              ? request.stopping().max_tokens()
                              : kDefaultMaxTokens);
  accepted.set_num_outputs(
      std::max(request.sampling().num_outputs(), uint32_t{1}));
  accepted.set_session_epoch(script.session_epoch);
  return event;
}

// In two parts, as a long prompt comes.
void AddPrompt(std::vector<v1::GenerateEvent>& events) {
  const std::string text = kPrompt;
  for (int part = 0; part < 2; ++part) {
    v1::PromptOutput& prompt = *events.emplace_back().mutable_prompt();
    prompt.set_first_token_index(part * 3);
    for (int i = 0; i < (part == 0 ? 3 : 2); ++i) {
      prompt.add_tokens()->set_id(part * 3 + i);
    }
    prompt.set_text(part == 0 ? text.substr(0, 4) : text.substr(4));
  }
}

}  // namespace

std::vector<v1::GenerateEvent> RightAnswer(const v1::GenerateRequest& request,
                                           const Script& script) {
  std::vector<v1::GenerateEvent> events = {AcceptedEvent(request, script)};
  const v1::Accepted accepted = events[0].accepted();
  if (request.response().echo()) AddPrompt(events);
  const uint64_t seed = accepted.seed() + script.seed_shift;
  std::vector<Output> outputs;
  std::vector<uint64_t> next;  // token of each
  uint64_t num_prior = 0;
  for (uint32_t o = 0; o < accepted.num_outputs(); ++o) {
    // The last one is the shortest.
    outputs.emplace_back(seed, o, accepted.max_tokens() - o);
    const uint64_t prior =
        request.prior_output_ids_size() == 0
            ? 0
            : static_cast<uint64_t>(request.prior_output_ids(o).ids_size());
    num_prior += prior;
    next.push_back(prior - std::min<uint64_t>(prior, script.num_repeated));
  }
  uint64_t num_tokens = 0;
  size_t num_finished = 0;
  for (bool first = true; num_finished < outputs.size(); first = false) {
    for (uint32_t o = 0; o < outputs.size(); ++o) {
      const uint64_t length = accepted.max_tokens() - o;
      if (next[o] > length) continue;  // it is over
      if (next[o] == length) {
        ++num_finished;
        num_tokens += length;
        events.push_back(outputs[o].Finished());
      } else {
        events.push_back(outputs[o].Token(next[o]));
        if (first) {
          v1::TokenOutput& token = *events.back().mutable_token();
          const std::string before = outputs[o].TextBefore(next[o]);
          size_t bytes = std::min(script.num_repeated_bytes, before.size());
          const auto splits_character = [&] {
            return (before[before.size() - bytes] & 0xc0) == 0x80;
          };
          while (bytes > 0 && splits_character()) ++bytes;
          token.set_text(before.substr(before.size() - bytes) + token.text());
          token.set_text_offset(before.size() - bytes);
        }
      }
      ++next[o];
    }
  }
  v1::Usage& usage = *events.back().mutable_usage();
  usage.set_prompt_tokens(kPromptTokens);
  usage.set_completion_tokens(num_tokens);
  usage.set_prior_tokens(num_prior);
  usage.set_total_tokens(kPromptTokens + num_tokens);
  events.back().mutable_timing()->set_decode_us(1);
  return events;
}

grpc::Status ServerError(grpc::StatusCode code, const std::string& reason,
                         int retry_ms) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  details.add_details()->PackFrom(info);
  if (retry_ms > 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_nanos(retry_ms * 1'000'000);
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(code, "as the script says", details.SerializeAsString());
}

class ScriptedServer::Inference final : public v1::Inference::Service {
 public:
  explicit Inference(ScriptedServer& owner) : owner_(owner) {}

  grpc::Status Generate(
      grpc::ServerContext* context, const v1::GenerateRequest* request,
      grpc::ServerWriter<v1::GenerateEvent>* writer) override {
    const Script script = TakeScript(*request);
    std::vector<v1::GenerateEvent> events = RightAnswer(*request, script);
    Save(*request, events);
    for (size_t i = 0; i < events.size(); ++i) {
      if (script.cut_before == static_cast<int>(i)) break;
      writer->Write(events[i]);
    }
    if (script.drops) context->TryCancel();
    return script.status;
  }

 private:
  Script TakeScript(const v1::GenerateRequest& request) {
    MutexLock lock(&owner_.mutex_);
    owner_.requests_.push_back(request);
    if (owner_.scripts_.empty()) return {};
    const Script script = owner_.scripts_.front();
    owner_.scripts_.pop_front();
    return script;
  }

  // A session that goes on keeps its name.
  static void Save(const v1::GenerateRequest& request,
                   std::vector<v1::GenerateEvent>& events) {
    if (!request.save_session()) return;
    for (v1::GenerateEvent& event : events) {
      if (!event.has_finished()) continue;
      event.mutable_finished()->mutable_session()->set_id(
          request.has_session() ? request.session().id() : "session-1");
    }
  }

  ScriptedServer& owner_;
};

class ScriptedServer::Control final : public v1::Control::Service {
 public:
  explicit Control(ScriptedServer& owner) : owner_(owner) {}

  grpc::Status GetServerInfo(grpc::ServerContext*,
                             const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override {
    MutexLock lock(&owner_.mutex_);
    info->set_numerics(owner_.numerics_);
    return grpc::Status::OK;
  }

 private:
  ScriptedServer& owner_;
};

class ScriptedServer::Sessions final : public v1::Sessions::Service {
 public:
  explicit Sessions(ScriptedServer& owner) : owner_(owner) {}

  grpc::Status Export(grpc::ServerContext*,
                      const v1::ExportSessionRequest* request,
                      grpc::ServerWriter<v1::SnapshotChunk>* writer) override {
    const std::string& bytes = owner_.snapshots_[request->id()];
    for (size_t at = 0; at < bytes.size(); at += 1000) {
      v1::SnapshotChunk chunk;
      chunk.set_data(bytes.substr(at, 1000));
      writer->Write(chunk);
    }
    return grpc::Status::OK;
  }

  grpc::Status Import(grpc::ServerContext*,
                      grpc::ServerReader<v1::SnapshotChunk>* reader,
                      v1::Session* session) override {
    std::string bytes;
    v1::SnapshotChunk chunk;
    while (reader->Read(&chunk)) {
      owner_.largest_chunk_ =
          std::max(owner_.largest_chunk_, chunk.data().size());
      bytes += chunk.data();
    }
    owner_.snapshots_["imported"] = bytes;
    session->set_id("imported");
    session->set_num_bytes(bytes.size());
    return grpc::Status::OK;
  }

 private:
  ScriptedServer& owner_;
};

ScriptedServer::ScriptedServer() {
  services_.push_back(std::make_unique<Inference>(*this));
  services_.push_back(std::make_unique<Control>(*this));
  services_.push_back(std::make_unique<Sessions>(*this));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  for (const auto& service : services_) builder.RegisterService(service.get());
  server_ = builder.BuildAndStart();
  address_ = "127.0.0.1:" + std::to_string(port);
}

void ScriptedServer::Play(std::deque<Script> scripts) {
  MutexLock lock(&mutex_);
  scripts_ = std::move(scripts);
}

void ScriptedServer::SetNumerics(const std::string& numerics) {
  MutexLock lock(&mutex_);
  numerics_ = numerics;
}

void ScriptedServer::Stop() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

std::vector<v1::GenerateRequest> ScriptedServer::requests() const {
  MutexLock lock(&mutex_);
  return requests_;
}

}  // namespace flash
