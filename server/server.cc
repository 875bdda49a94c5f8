#include "server/server.h"

#include <gnu/libc-version.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/command_line/version.h"
#include "server/log.h"
#include "server/machine.h"
#include "server/memory_plan.h"
#include "server/metrics.h"
#include "server/model/flash_model.h"
#include "server/model/model_digest.h"
#include "server/scheduler/engine.h"
#include "server/service/grpc_server.h"
#include "server/sessions/blob_store.h"
#include "server/sessions/checkpoint_keeper.h"
#include "server/sessions/prefix_cache.h"
#include "server/sessions/sessions.h"
#include "server/sessions/snapshot_codec.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {
namespace {

const char* NameOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBFloat16:
      return "bfloat16";
    case DataType::kInt8:
      return "int8";
  }
  return "unknown";
}

const char* NameOf(TokenizerConfig::Type type) {
  switch (type) {
    case TokenizerConfig::Type::kSentencePiece:
      return "sentencepiece";
    case TokenizerConfig::Type::kBytes:
      return "bytes";
    case TokenizerConfig::Type::kNone:
      return "none";
  }
  return "unknown";
}

std::string FolderName(const std::string& directory) {
  std::error_code error;  // the working directory may be gone
  const std::filesystem::path path =
      std::filesystem::absolute(directory, error).lexically_normal();
  return path.has_filename() ? path.filename().string()
                             : path.parent_path().filename().string();
}

template <typename To, typename From>
std::optional<To> Narrow(const std::optional<From>& value) {
  return value.has_value() ? std::optional<To>(static_cast<To>(*value))
                           : std::nullopt;
}

int64_t CountParameters(const Checkpoint& checkpoint) {
  int64_t count = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    count += elements;
  }
  return count;
}

constexpr int64_t kMiB = int64_t{1} << 20;

// --max_step_rows=auto; its help says why.
constexpr int kStepRowsOfProcessor = 320;
constexpr int kStepRowsOfCard = 1280;

// "dir" of "dir:PATH".
std::string KindOf(const std::string& store) {
  return store.substr(0, store.find(':'));
}

// Tells this server from others that share its store.
std::string ServerId() {
  char name[256] = "unknown";
  gethostname(name, sizeof(name) - 1);
  return absl::StrCat(name, ":", getpid());
}

class ServerImpl final : public Server {
 public:
  ServerImpl(const ServerConfig& config, Device device)
      : config_(config), device_(std::move(device)) {}

  ~ServerImpl() override {
    if (engine_ != nullptr) engine_->Stop(Clock::now());
  }

  absl::Status Load();
  absl::Status Serve(
      std::function<void(const absl::Status&)> on_device_failure);

  std::string address() const override {
    return absl::StrCat(config_.listen.substr(0, config_.listen.rfind(':') + 1),
                        grpc_->port());
  }
  std::string Describe() const override;
  void Drain() override;

 private:
  absl::Status MakeModel(const ModelFiles& files);
  // The sessions' store and what stands on it, and the prefix cache.
  absl::Status OpenSessions();
  absl::Status StartEngine(
      std::function<void(const absl::Status&)> on_device_failure);
  ModelFacts FactsOfModel() const;
  ServerFacts FactsOfServer() const;
  ServiceLimits Limits() const;
  MetricsSources SourcesOfMetrics() const;
  std::string Numerics() const;
  bool OnCard() const { return device_.free_card_bytes != nullptr; }
  void OnCall(const CallReport& report);

  const ServerConfig config_;
  int64_t num_parameters_ = 0;
  const Device device_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<FlashModel> model_;
  MemoryPlan memory_;
  Fingerprint fingerprint_;
  std::unique_ptr<BlobStore> store_;  // null, as the next three: no sessions
  std::unique_ptr<SnapshotCodec> codec_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<CheckpointKeeper> checkpoints_;
  std::unique_ptr<PrefixCache> prefix_cache_;  // null: off
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<GrpcServer> grpc_;
};

absl::Status ServerImpl::Load() {
  auto files = ModelFiles::Open(config_.model);
  if (!files.ok()) return files.status();
  num_parameters_ = CountParameters(files->checkpoint);
  auto tokenizer = MakeTokenizer(files->config.tokenizer, config_.model,
                                 files->config.vocab_size);
  if (!tokenizer.ok()) return tokenizer.status();
  tokenizer_ = *std::move(tokenizer);
  const absl::Status loaded = MakeModel(*files);
  return loaded.ok() ? OpenSessions() : loaded;
}

absl::Status ServerImpl::MakeModel(const ModelFiles& files) {
  FlashModel::Options options;
  options.weights = config_.weights;
  options.cache = config_.cache;
  options.choose_slots =
      [this](const StateLayout& layout) -> absl::StatusOr<int> {
    auto plan =
        PlanMemory(config_,
                   {.host = UsableMemoryBytes(),
                    .card = OnCard() ? std::optional(device_.free_card_bytes())
                                     : std::nullopt},
                   layout);
    if (!plan.ok()) return plan.status();
    memory_ = *plan;
    return memory_.num_slots;
  };
  options.max_rows = config_.max_step_rows.value_or(
      OnCard() ? kStepRowsOfCard : kStepRowsOfProcessor);
  options.max_logits_rows =
      OnCard() ? options.max_rows
               : std::min(options.max_logits_rows, options.max_rows);
  auto model = FlashModel::Create(*device_.backend, files.config, files.weights,
                                  options);
  if (!model.ok()) return model.status();
  model_ = *std::move(model);
  auto tokenizer = TokenizerDigest(files.config.tokenizer, config_.model);
  if (!tokenizer.ok()) return tokenizer.status();
  fingerprint_ = {.model = ModelDigest(files, *device_.threads),
                  .tokenizer = *std::move(tokenizer),
                  .state_format = model_->state_format(),
                  .numerics = Numerics()};
  return absl::OkStatus();
}

absl::Status ServerImpl::OpenSessions() {
  if (memory_.prefix_cache > 0) {
    prefix_cache_ = std::make_unique<PrefixCache>(PrefixCache::Options{
        .max_bytes = memory_.prefix_cache,
        .chunk_size = model_->chunk_size(),
        .fingerprint =
            absl::StrCat(fingerprint_.model, "/", fingerprint_.state_format,
                         "/", fingerprint_.numerics),
        .sharing = config_.prefix_cache_sharing});
  }
  if (config_.session_store.empty()) return absl::OkStatus();
  auto store = OpenBlobStore(config_.session_store, memory_.max_store_bytes,
                             [](const std::string& what) { Log(what); });
  if (!store.ok()) return store.status();
  store_ = *std::move(store);
  codec_ = std::make_unique<SnapshotCodec>(
      fingerprint_, config_.session_compression,
      SnapshotLimits{
          .max_state_bytes = model_->slot_bytes() + kMostStateHeadBytes,
          .num_ids = model_->vocab_size(),
          .check_state = [this](std::string_view state, int64_t position) {
            return model_->CheckState(state, position);
          }});
  sessions_ = std::make_unique<Sessions>(
      Sessions::Options{.time_to_live = absl::FromChrono(config_.session_ttl),
                        .cache_bytes = memory_.session_cache,
                        .server_id = ServerId()},
      store_.get(), codec_.get());
  if (config_.checkpoint_every_tokens > 0) {
    checkpoints_ = std::make_unique<CheckpointKeeper>(
        CheckpointKeeper::Options{.max_waiting_bytes = memory_.checkpoints,
                                  .on_failure =
                                      [](const absl::Status& status) {
                                        Log(absl::StrCat(
                                            "no checkpoints are kept: ",
                                            std::string(status.message())));
                                      }},
        store_.get());
  }
  return absl::OkStatus();
}

absl::Status ServerImpl::StartEngine(
    std::function<void(const absl::Status&)> on_device_failure) {
  EngineOptions options;
  options.max_queued_requests = config_.max_queued_requests;
  options.max_queued_tokens = config_.max_queued_tokens;
  options.max_drafted_tokens = config_.max_drafted_tokens;
  const ModelConfig& model = model_->config();
  options.eos_token_ids = {model.eos_token_ids.begin(),
                           model.eos_token_ids.end()};
  options.max_length = model.max_length;
  options.max_prompt_logprobs = Limits().max_prompt_candidates;
  options.target_step_time = config_.target_step_time;
  options.slow_reader_timeout = config_.slow_reader_timeout;
  options.num_samplers = device_.threads->num_threads();
  options.prefix_states = prefix_cache_.get();
  options.checkpoints = checkpoints_.get();
  options.checkpoint_every_tokens = config_.checkpoint_every_tokens;
  options.on_device_failure = std::move(on_device_failure);
  auto engine =
      Engine::Create(std::move(options), model_.get(), tokenizer_.get(),
                     [this](int n, const std::function<void(int)>& body) {
                       device_.threads->ParallelFor(
                           n, [&body](int index, int) { body(index); });
                     });
  if (!engine.ok()) return engine.status();
  engine_ = *std::move(engine);
  return absl::OkStatus();
}

absl::Status ServerImpl::Serve(
    std::function<void(const absl::Status&)> on_device_failure) {
  const absl::Status started = StartEngine(std::move(on_device_failure));
  if (!started.ok()) return started;
  if (!config_.metrics_listen.empty()) {
    auto metrics = Metrics::Start(config_.metrics_listen, SourcesOfMetrics());
    if (!metrics.ok()) return metrics.status();
    metrics_ = *std::move(metrics);
  }
  GrpcServerOptions options;
  options.listen = config_.listen;
  options.limits = Limits();
  options.model = FactsOfModel();
  options.server = FactsOfServer();
  options.outbox_events = config_.outbox_events;
  options.linger = config_.slow_reader_timeout;
  options.max_streams_per_connection = config_.max_streams_per_connection;
  options.stale_after = config_.stale_after;
  options.sessions = sessions_.get();
  options.max_session_bytes = memory_.session_requests;
  options.max_transfers = memory_.max_transfers;
  options.store_threads = kStoreWorkers;
  options.checkpoints = checkpoints_.get();
  options.prefix_cache = prefix_cache_.get();
  if (!config_.tenant_metadata.empty()) {
    options.identity = MakeOwnerOfMetadata(config_.tenant_metadata);
  }
  options.report = [this](const CallReport& report) { OnCall(report); };
  auto grpc =
      GrpcServer::Start(std::move(options), engine_.get(), tokenizer_.get());
  if (!grpc.ok()) return grpc.status();
  grpc_ = *std::move(grpc);
  return absl::OkStatus();
}

ServiceLimits ServerImpl::Limits() const {
  ServiceLimits limits;
  limits.max_prompt_tokens = config_.max_prompt_tokens;
  limits.max_text_bytes = config_.max_text_bytes;
  limits.max_tokens = config_.max_tokens;
  limits.default_max_tokens = config_.default_max_tokens;
  limits.max_outputs = std::min(limits.max_outputs, model_->num_slots());
  limits.max_message_bytes = config_.max_message_bytes;
  limits.max_import_bytes = MostSessionBytes(model_->slot_bytes());
  return limits;
}

MetricsSources ServerImpl::SourcesOfMetrics() const {
  MetricsSources sources;
  sources.memory = PartsOf(memory_);
  sources.engine = [this] { return engine_->stats(); };
  if (prefix_cache_ != nullptr) {
    sources.prefix_cache = [this] { return prefix_cache_->stats(); };
  }
  if (sessions_ != nullptr) {
    sources.sessions = [this] { return sessions_->stats(); };
    sources.store = [this] { return store_->num_damaged(); };
  }
  if (checkpoints_ != nullptr) {
    sources.checkpoints = [this] { return checkpoints_->stats(); };
  }
  return sources;
}

ModelFacts ServerImpl::FactsOfModel() const {
  const ModelConfig& config = model_->config();
  ModelFacts facts;
  facts.name = FolderName(config_.model);
  facts.num_parameters = num_parameters_;
  facts.vocab_size = static_cast<int32_t>(config.vocab_size);
  facts.num_pieces =
      std::min(tokenizer_->num_pieces(), static_cast<int>(config.vocab_size));
  facts.hidden_size = config.hidden_size;
  facts.expanded_size = config.expanded_size;
  facts.query_key_size = config.query_key_size;
  facts.num_layers = config.num_layers;
  facts.chunk_size = config.chunk_size;
  facts.max_length = config.max_length;
  facts.trained_length = config.trained_length;
  facts.bos_token_id = Narrow<int32_t>(config.bos_token_id);
  facts.eos_token_ids = {config.eos_token_ids.begin(),
                         config.eos_token_ids.end()};
  facts.has_text = tokenizer_->has_text();
  facts.tokenizer = NameOf(config.tokenizer.type);
  facts.state_bytes = model_->slot_bytes();
  return facts;
}

std::string ServerImpl::Numerics() const {
  return absl::StrCat(kVersion, "/", device_.numerics, "/glibc-",
                      gnu_get_libc_version(),
                      "/weights=", NameOf(model_->weights_type()),
                      "/cache=", NameOf(model_->cache_type()));
}

ServerFacts ServerImpl::FactsOfServer() const {
  ServerFacts facts;
  facts.version = kVersion;
  facts.device = device_.kind;
  facts.device_name = device_.name;
  facts.instruction_set = device_.kernels;
  facts.num_threads = device_.threads->num_threads();
  facts.weights_type = NameOf(model_->weights_type());
  facts.cache_type = NameOf(model_->cache_type());
  facts.numerics = Numerics();
  facts.num_slots = model_->num_slots();
  facts.max_step_rows = model_->max_rows();
  facts.session_store = KindOf(config_.session_store);
  facts.session_seconds =
      std::chrono::duration_cast<std::chrono::seconds>(config_.session_ttl)
          .count();
  facts.prefix_cache_bytes = memory_.prefix_cache;
  facts.memory = PartsOf(memory_);
  facts.checkpoint_every_tokens = config_.checkpoint_every_tokens;
  return facts;
}

std::string ServerImpl::Describe() const {
  return absl::StrCat(
      "model \"", FolderName(config_.model), "\" (", num_parameters_,
      " parameters) on ", device_.backend->Describe(), ", weights ",
      NameOf(model_->weights_type()), ", cache ", NameOf(model_->cache_type()),
      ", ", model_->num_slots(), " slots of ", model_->slot_bytes(), " bytes, ",
      store_ == nullptr ? "no sessions"
                        : absl::StrCat("sessions in ", store_->Describe()),
      "; memory in MiB: ",
      absl::StrJoin(PartsOf(memory_), ", ",
                    [](std::string* text, const auto& part) {
                      absl::StrAppend(text, part.first, " ",
                                      (part.second + kMiB - 1) / kMiB);
                    }));
}

void ServerImpl::OnCall(const CallReport& report) {
  LogCall(report, model_->config().trained_length);
  if (metrics_ != nullptr) metrics_->Count(report);
}

void ServerImpl::Drain() {
  // Clients that have read what was in their outboxes need a moment more.
  constexpr auto kLastWrites = std::chrono::seconds(2);
  const auto deadline = Clock::now() + config_.drain_timeout;
  grpc_->LeaveService();
  engine_->Drain();
  engine_->Stop(deadline);
  grpc_->Shutdown(std::max(deadline, Clock::now() + kLastWrites));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(
    const ServerConfig& config, Device device,
    std::function<void(const absl::Status&)> on_device_failure) {
  auto server = std::make_unique<ServerImpl>(config, std::move(device));
  absl::Status status = server->Load();
  if (status.ok()) status = server->Serve(std::move(on_device_failure));
  if (!status.ok()) return status;
  return server;
}

}  // namespace flash
