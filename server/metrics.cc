#include "server/metrics.h"

#include <prometheus/client_metric.h>
#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/family.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <exception>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace flash {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

using Families = std::vector<MetricFamily>;

// One number of a family, and what tells it from the others.
struct Value {
  int64_t number = 0;
  std::vector<ClientMetric::Label> labels = {};
};

void Add(Families& families, MetricType type, const char* name,
         const char* help, const std::vector<Value>& values) {
  MetricFamily& family = families.emplace_back();
  family.name = name;
  family.help = help;
  family.type = type;
  for (const Value& value : values) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = value.labels;
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        static_cast<double>(value.number);
  }
}

void Gauge(Families& families, const char* name, const char* help,
           const std::vector<Value>& values) {
  Add(families, MetricType::Gauge, name, help, values);
}

void Counter(Families& families, const char* name, const char* help,
             const std::vector<Value>& values) {
  Add(families, MetricType::Counter, name, help, values);
}

void CollectStats(const EngineStats& stats, Families& to) {
  Gauge(to, "flash_requests_running", "Requests that have their slots.",
        {{stats.running_requests}});
  Gauge(to, "flash_requests_queued", "Requests that wait for a slot.",
        {{stats.queued_requests}});
  Gauge(to, "flash_requests_blocked",
        "Running requests that pause because their client does not read.",
        {{stats.blocked_requests}});
  Gauge(to, "flash_slots", "Slots, by what they are.",
        {{stats.free_slots, {{"state", "free"}}},
         {stats.num_slots - stats.free_slots, {{"state", "busy"}}}});
  Counter(to, "flash_tokens_total", "Tokens that were run, by kind.",
          {{stats.prompt_tokens, {{"kind", "prompt"}}},
           {stats.generated_tokens, {{"kind", "generated"}}}});
  Counter(to, "flash_drafted_tokens_total",
          "Guesses at next tokens that were run to be verified.",
          {{stats.drafted_tokens}});
  Counter(to, "flash_accepted_tokens_total",
          "Drafted tokens that turned out right: steps that were saved.",
          {{stats.accepted_tokens}});
  Counter(to, "flash_steps_total", "Passes over the network.", {{stats.steps}});
}

void CollectStats(const PrefixCache::Stats& stats, Families& to) {
  Gauge(to, "flash_prefix_cache_bytes", "What the prefix cache holds.",
        {{stats.bytes}});
  Gauge(to, "flash_prefix_cache_max_bytes", "What it may hold.",
        {{stats.max_bytes}});
  Gauge(to, "flash_prefix_cache_states", "The states that it holds.",
        {{stats.states}});
  Counter(to, "flash_prefix_cache_hits_total",
          "Prompts that went on from a state of their beginning.",
          {{stats.hits}});
  Counter(to, "flash_prefix_cache_hit_tokens_total",
          "Prompt tokens that were not run because of that.",
          {{stats.hit_tokens}});
  Counter(to, "flash_prefix_cache_misses_total",
          "Prompts of a chunk or more that did not, by reason: new: no earlier "
          "prompt is known to have begun so; lost: one is, but no state of "
          "what they share was kept.",
          {{stats.new_misses, {{"reason", "new"}}},
           {stats.lost_misses, {{"reason", "lost"}}}});
  Counter(to, "flash_prefix_cache_puts_total", "States that were taken in.",
          {{stats.puts}});
  Counter(to, "flash_prefix_cache_refusals_total",
          "States that were not, by reason: too_large: for the whole cache; "
          "worthless: every other one would save more.",
          {{stats.too_large, {{"reason", "too_large"}}},
           {stats.worthless, {{"reason", "worthless"}}}});
  Counter(to, "flash_prefix_cache_evictions_total",
          "States that had to make room, by whether they had been a hit.",
          {{stats.used_evictions, {{"reason", "budget"}, {"used", "yes"}}},
           {stats.unused_evictions, {{"reason", "budget"}, {"used", "no"}}}});
}

void CollectStats(const Sessions::Stats& stats, Families& to) {
  Gauge(to, "flash_session_cache_sessions",
        "Sessions that are decoded in memory.", {{stats.cached_sessions}});
  Gauge(to, "flash_session_cache_bytes", "Their size.", {{stats.cached_bytes}});
  Counter(to, "flash_session_cache_lookups_total",
          "Sessions that were opened, by whether they were there.",
          {{stats.cache_hits, {{"result", "hit"}}},
           {stats.cache_misses, {{"result", "miss"}}}});
  Counter(to, "flash_sessions_created_total", "New sessions, forks included.",
          {{stats.created}});
  Counter(to, "flash_sessions_committed_total",
          "Sessions that a request went on with and wrote back.",
          {{stats.committed}});
  Counter(
      to, "flash_session_answers_repeated_total",
      "Requests whose answer was given once more, its end having been lost.",
      {{stats.repeated_answers}});
  Counter(to, "flash_session_claims_lost_total",
          "Requests whose session another one took over.",
          {{stats.lost_claims}});
  Counter(to, "flash_session_store_errors_total",
          "Calls that the sessions' store failed.", {{stats.store_errors}});
}

void CollectStats(const CheckpointKeeper::Stats& stats, Families& to) {
  Counter(to, "flash_checkpoints_total",
          "Checkpoints of running requests, by what became of them: written; "
          "replaced by a newer one before that; dropped: too many waited; "
          "failed in the store, deletions included.",
          {{stats.written, {{"result", "written"}}},
           {stats.replaced, {{"result", "replaced"}}},
           {stats.dropped, {{"result", "dropped"}}},
           {stats.failed, {{"result", "failed"}}}});
  Counter(to, "flash_checkpoint_recalls_total",
          "Requests begun elsewhere, by whether there was a checkpoint.",
          {{stats.recalled, {{"result", "hit"}}},
           {stats.recall_misses, {{"result", "miss"}}},
           {stats.recall_failures, {{"result", "failed"}}}});
  Gauge(to, "flash_checkpoints_waiting_bytes",
        "States that wait to be written, or are being written.",
        {{stats.waiting_bytes}});
}

void CollectStats(int64_t num_damaged, Families& to) {
  Gauge(to, "flash_session_store_damaged",
        "What the sessions' store holds and cannot read.", {{num_damaged}});
}

class SourcesCollector final : public prometheus::Collectable {
 public:
  explicit SourcesCollector(MetricsSources sources)
      : sources_(std::move(sources)) {}

  Families Collect() const override {
    Families families;
    if (!sources_.memory.empty()) CollectMemory(families);
    CollectFrom(sources_.engine, families);
    CollectFrom(sources_.prefix_cache, families);
    CollectFrom(sources_.sessions, families);
    CollectFrom(sources_.store, families);
    CollectFrom(sources_.checkpoints, families);
    return families;
  }

 private:
  void CollectMemory(Families& to) const {
    std::vector<Value> values;
    for (const auto& [part, bytes] : sources_.memory) {
      values.push_back({bytes, {{"part", part}}});
    }
    Gauge(to, "flash_memory_plan_bytes",
          "Bytes of memory that each part may take; what would take more is "
          "refused.",
          values);
  }

  template <typename Stats>
  static void CollectFrom(const std::function<Stats()>& source, Families& to) {
    if (source) CollectStats(source(), to);
  }

  const MetricsSources sources_;
};

class MetricsImpl final : public Metrics {
 public:
  MetricsImpl(std::unique_ptr<prometheus::Exposer> exposer,
              MetricsSources sources)
      : sources_(std::make_shared<SourcesCollector>(std::move(sources))),
        registry_(std::make_shared<prometheus::Registry>()),
        calls_(prometheus::BuildCounter()
                   .Name("flash_calls_total")
                   .Help("Calls that ran a request and have ended, by method "
                         "and status code.")
                   .Register(*registry_)),
        exposer_(std::move(exposer)) {
    exposer_->RegisterCollectable(sources_);
    exposer_->RegisterCollectable(registry_);
  }

  void Count(const CallReport& report) override {
    calls_
        .Add({{"method", report.method},
              {"code", absl::StatusCodeToString(report.status.code())}})
        .Increment();
  }

  int port() const override { return exposer_->GetListeningPorts().at(0); }

 private:
  const std::shared_ptr<SourcesCollector> sources_;
  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& calls_;
  const std::unique_ptr<prometheus::Exposer> exposer_;  // ends first
};

}  // namespace

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::Start(
    const std::string& listen, MetricsSources sources) {
  // The library throws where a port is taken; nothing of ours does.
  try {
    return std::make_unique<MetricsImpl>(
        std::make_unique<prometheus::Exposer>(std::vector<std::string>{
            // Connections on which nothing comes may not keep scrapes out.
            "listening_ports", listen, "num_threads", "16",
            "request_timeout_ms", "2000", "enable_keep_alive", "no"}),
        std::move(sources));
  } catch (const std::exception&) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", listen,
        " for metrics: the address is in use or not of this machine"));
  }
}

}  // namespace flash
