#include "server/service/control_service.h"

#include "flash/v1/control.grpc.pb.h"
#include "server/service/errors.h"
#include "server/service/field_checks.h"

namespace flash {
namespace {

// Counts up when the API gains something.
constexpr uint32_t kApiRevision = 2;

void FillLimits(const ServiceLimits& limits, v1::Limits& wire) {
  wire.set_max_prompt_tokens(limits.max_prompt_tokens);
  wire.set_max_text_bytes(limits.max_text_bytes);
  wire.set_max_tokens(limits.max_tokens);
  wire.set_default_max_tokens(limits.default_max_tokens);
  wire.set_max_outputs(limits.max_outputs);
  wire.set_max_stop_strings(limits.max_stop_strings);
  wire.set_max_stop_string_bytes(limits.max_stop_string_bytes);
  wire.set_max_stop_token_ids(limits.max_stop_token_ids);
  wire.set_max_logprobs(limits.max_logprobs);
  wire.set_max_prompt_candidates(limits.max_prompt_candidates);
  wire.set_max_unary_candidates(limits.max_unary_candidates);
  wire.set_max_logit_bias_entries(limits.max_logit_bias_entries);
  wire.set_max_allowed_token_ids(limits.max_allowed_token_ids);
  wire.set_max_request_id_bytes(limits.max_request_id_bytes);
  wire.set_max_message_bytes(limits.max_message_bytes);
}

void FillSessions(const ServerFacts& facts, const ServiceLimits& limits,
                  v1::SessionSupport& wire) {
  wire.set_store(facts.session_store);
  wire.set_time_to_live_seconds(facts.session_seconds);
  wire.set_max_time_to_live_seconds(limits.max_time_to_live_seconds);
  wire.set_max_forks(limits.max_forks);
  wire.set_max_page_size(limits.max_page_size);
  wire.set_max_import_bytes(limits.max_import_bytes);
}

void FillLoad(const EngineStats& stats, v1::Load& wire) {
  wire.set_requests_running(static_cast<uint32_t>(stats.running_requests));
  wire.set_requests_queued(static_cast<uint32_t>(stats.queued_requests));
  wire.set_slots_free(static_cast<uint32_t>(stats.free_slots));
  wire.set_prompt_tokens(stats.prompt_tokens);
  wire.set_generated_tokens(stats.generated_tokens);
  wire.set_drafted_tokens(stats.drafted_tokens);
  wire.set_accepted_tokens(stats.accepted_tokens);
  wire.set_steps(stats.steps);
}

void FillServer(const ServerFacts& facts, v1::ServerInfo& wire) {
  wire.set_version(facts.version);
  wire.set_api_revision(kApiRevision);
  wire.set_device(facts.device);
  wire.set_device_name(facts.device_name);
  wire.set_instruction_set(facts.instruction_set);
  wire.set_num_threads(facts.num_threads);
  wire.set_weights_type(facts.weights_type);
  wire.set_cache_type(facts.cache_type);
  wire.set_numerics(facts.numerics);
  wire.set_num_slots(facts.num_slots);
  wire.set_max_step_rows(facts.max_step_rows);
  wire.set_prefix_cache_bytes(facts.prefix_cache_bytes);
  wire.set_checkpoint_every_tokens(facts.checkpoint_every_tokens);
  for (const auto& [name, bytes] : facts.memory) {
    auto& part = *wire.add_memory();
    part.set_name(name);
    part.set_bytes(bytes);
  }
}

void FillModel(const ModelFacts& facts, v1::ModelInfo& wire) {
  wire.set_name(facts.name);
  wire.set_architecture(facts.architecture);
  wire.set_num_parameters(facts.num_parameters);
  wire.set_vocab_size(facts.vocab_size);
  wire.set_num_pieces(facts.num_pieces);
  wire.set_hidden_size(facts.hidden_size);
  wire.set_expanded_size(facts.expanded_size);
  wire.set_query_key_size(facts.query_key_size);
  wire.set_num_layers(facts.num_layers);
  wire.set_chunk_size(facts.chunk_size);
  if (facts.max_length) wire.set_max_length(*facts.max_length);
  if (facts.trained_length) wire.set_trained_length(*facts.trained_length);
  if (facts.bos_token_id) wire.set_bos_token_id(*facts.bos_token_id);
  for (const int32_t id : facts.eos_token_ids) wire.add_eos_token_ids(id);
  wire.set_has_text(facts.has_text);
  wire.set_tokenizer(facts.tokenizer);
  wire.set_state_bytes(facts.state_bytes);
}

class ControlService final : public v1::Control::CallbackService {
 public:
  ControlService(const ServerFacts& server, const RequestParser& parser,
                 const Engine& engine)
      : server_(server), parser_(parser), engine_(engine) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest*,
                                          v1::ServerInfo* info) override {
    const EngineStats stats = engine_.stats();
    FillServer(server_, *info);
    info->set_uptime_ms(std::chrono::duration_cast<std::chrono::milliseconds>(
                            Clock::now() - start_)
                            .count());
    FillLimits(parser_.limits(), *info->mutable_limits());
    if (!server_.session_store.empty()) {
      FillSessions(server_, parser_.limits(), *info->mutable_sessions());
    }
    FillLoad(stats, *info->mutable_load());
    info->set_shutting_down(stats.draining);
    return Done(context, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const v1::GetModelInfoRequest* request,
                                         v1::ModelInfo* info) override {
    FieldChecks checks;
    checks.NoUnknownFields(*request);
    if (!checks.ok()) return Done(context, checks.status());
    if (request->has_model()) {
      const absl::Status found = parser_.CheckModel(request->model());
      if (!found.ok()) return Done(context, found);
    }
    FillModel(parser_.model(), *info);
    return Done(context, absl::OkStatus());
  }

 private:
  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context,
                                        const absl::Status& status) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }

  const ServerFacts server_;
  const RequestParser& parser_;
  const Engine& engine_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

std::unique_ptr<grpc::Service> MakeControlService(const ServerFacts& server,
                                                  const RequestParser& parser,
                                                  const Engine& engine) {
  return std::make_unique<ControlService>(server, parser, engine);
}

}  // namespace flash
