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

struct Label {
  std::string name;
  std::string value;
};

class EngineMetrics final : public prometheus::Collectable {
 public:
  explicit EngineMetrics(const Engine* engine) : engine_(*engine) {}

  std::vector<MetricFamily> Collect() const override {
    const EngineStats stats = engine_.stats();
    std::vector<MetricFamily> families;
    Gauge(families, "flash_requests_running", "Requests that have their slots.",
          stats.running_requests);
    Gauge(families, "flash_requests_queued", "Requests that wait for a slot.",
          stats.queued_requests);
    Gauge(families, "flash_requests_blocked",
          "Running requests that pause because their client does not read.",
          stats.blocked_requests);
    auto& slots = Family(families, "flash_slots", "Slots, by what they are.",
                         MetricType::Gauge);
    Add(slots, {"state", "free"}, stats.free_slots);
    Add(slots, {"state", "busy"}, stats.num_slots - stats.free_slots);
    auto& tokens =
        Family(families, "flash_tokens_total", "Tokens that were run, by kind.",
               MetricType::Counter);
    Add(tokens, {"kind", "prompt"}, stats.prompt_tokens);
    Add(tokens, {"kind", "generated"}, stats.generated_tokens);
    Add(Family(families, "flash_drafted_tokens_total",
               "Guesses at next tokens that were run to be verified.",
               MetricType::Counter),
        {}, stats.drafted_tokens);
    Add(Family(families, "flash_accepted_tokens_total",
               "Drafted tokens that turned out right: steps that were saved.",
               MetricType::Counter),
        {}, stats.accepted_tokens);
    auto& steps = Family(families, "flash_steps_total",
                         "Passes over the network.", MetricType::Counter);
    Add(steps, {}, stats.steps);
    return families;
  }

 private:
  static MetricFamily& Family(std::vector<MetricFamily>& families,
                              const char* name, const char* help,
                              MetricType type) {
    MetricFamily& family = families.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
    return family;
  }

  static void Add(MetricFamily& family, const Label& label, int64_t value) {
    ClientMetric& metric = family.metric.emplace_back();
    if (!label.name.empty()) metric.label = {{label.name, label.value}};
    if (family.type == MetricType::Counter) {
      metric.counter.value = static_cast<double>(value);
    } else {
      metric.gauge.value = static_cast<double>(value);
    }
  }

  static void Gauge(std::vector<MetricFamily>& families, const char* name,
                    const char* help, int64_t value) {
    Add(Family(families, name, help, MetricType::Gauge), {}, value);
  }

  const Engine& engine_;
};

class MetricsImpl final : public Metrics {
 public:
  MetricsImpl(std::unique_ptr<prometheus::Exposer> exposer,
              const Engine* engine)
      : engine_(std::make_shared<EngineMetrics>(engine)),
        registry_(std::make_shared<prometheus::Registry>()),
        calls_(prometheus::BuildCounter()
                   .Name("flash_calls_total")
                   .Help("Calls that ran a request and have ended, by method "
                         "and status code.")
                   .Register(*registry_)),
        exposer_(std::move(exposer)) {
    exposer_->RegisterCollectable(engine_);
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
  const std::shared_ptr<EngineMetrics> engine_;
  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& calls_;
  const std::unique_ptr<prometheus::Exposer> exposer_;  // ends first
};

}  // namespace

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::Start(
    const std::string& listen, const Engine* engine) {
  // The library throws where a port is taken; nothing of ours does.
  try {
    return std::make_unique<MetricsImpl>(
        std::make_unique<prometheus::Exposer>(std::vector<std::string>{
            // Connections on which nothing comes may not keep scrapes out.
            "listening_ports", listen, "num_threads", "16",
            "request_timeout_ms", "2000", "enable_keep_alive", "no"}),
        engine);
  } catch (const std::exception&) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", listen,
        " for metrics: the address is in use or not of this machine"));
  }
}

}  // namespace flash
