#include "client/load_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/message_json.h"

namespace flash {
namespace {

using nlohmann::ordered_json;

constexpr int kSchema = 1;

std::string Row(const std::string& name, const LatencySummary& s) {
  return absl::StrFormat("%-22s %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f %9d\n",
                         name, s.mean, s.p50, s.p90, s.p99, s.p99_9, s.max,
                         s.count);
}

ordered_json SummaryJson(const LatencySummary& s) {
  return {{"count", s.count}, {"mean", s.mean}, {"p50", s.p50},
          {"p90", s.p90},     {"p99", s.p99},   {"p99_9", s.p99_9},
          {"max", s.max}};
}

ordered_json SettingsJson(const LoadSettings& settings) {
  return {{"server", settings.server},
          {"mode", "closed"},
          {"sessions", settings.sessions},
          {"prompt", settings.prompt_text.empty() ? "random" : "text"},
          {"prompt_tokens", settings.prompt_tokens},
          {"max_tokens", settings.max_tokens},
          {"temperature", settings.temperature},
          {"seed", settings.seed},
          {"warmup_seconds", settings.warmup.count() / 1000.0},
          {"duration_seconds", settings.duration.count() / 1000.0},
          {"requests", settings.requests}};
}

}  // namespace

std::string LoadTable(const LoadSettings& settings, const LoadResult& result) {
  std::string table = absl::StrFormat(
      "%d sessions, closed loop, %.2f s\n"
      "%-22s %9.1f a second (%d tokens)\n",
      settings.sessions, result.seconds, "tokens", result.tokens_per_second(),
      result.tokens);
  std::string statuses;
  for (const auto& [name, count] : result.by_status) {
    absl::StrAppend(&statuses, statuses.empty() ? "" : ", ", count, " ", name);
  }
  absl::StrAppendFormat(&table, "%-22s %s%s%d cut off by the end\n", "requests",
                        statuses, statuses.empty() ? "" : ", ",
                        result.requests_cut);
  absl::StrAppendFormat(&table, "%-22s %9s %9s %9s %9s %9s %9s %9s\n",
                        "milliseconds", "mean", "p50", "p90", "p99", "p99.9",
                        "max", "count");
  table += Row("to the first token", result.first_token_ms.Summarize());
  table += Row("between two tokens", result.gap_ms.Summarize());
  table += Row("of a whole request", result.request_ms.Summarize());
  return table;
}

ordered_json LoadJson(const LoadSettings& settings, const LoadResult& result,
                      const v1::ServerInfo& server,
                      const v1::ModelInfo& model) {
  ordered_json json;
  json["schema"] = kSchema;
  json["settings"] = SettingsJson(settings);
  json["seconds"] = result.seconds;
  json["tokens"] = result.tokens;
  json["tokens_per_second"] = result.tokens_per_second();
  json["prompt_tokens"] = result.prompt_tokens;
  json["requests_begun"] = result.requests_begun;
  json["requests_cut"] = result.requests_cut;
  json["requests_by_status"] = ordered_json::object();
  for (const auto& [name, count] : result.by_status) {
    json["requests_by_status"][name] = count;
  }
  json["requests_refused"] = result.requests_refused;
  json["requests_failed"] = result.requests_failed;
  json["first_failure"] = result.first_failure;
  json["first_token_ms"] = SummaryJson(result.first_token_ms.Summarize());
  json["gap_ms"] = SummaryJson(result.gap_ms.Summarize());
  json["request_ms"] = SummaryJson(result.request_ms.Summarize());
  json["server"] = MessageJson(server);
  json["model"] = MessageJson(model);
  return json;
}

absl::Status Verdict(const LoadResult& result, double max_refused) {
  if (result.requests_failed > 0) {
    return absl::UnavailableError(absl::StrCat(
        result.requests_failed, " requests failed, the first with ",
        result.first_failure));
  }
  int64_t ended = 0;
  for (const auto& [name, count] : result.by_status) ended += count;
  const int64_t refused = result.requests_refused;
  if (static_cast<double>(refused) > max_refused * static_cast<double>(ended)) {
    return absl::UnavailableError(absl::StrCat(
        "a full queue refused ", refused, " of ", ended,
        " requests: more than the part --max_refused=", max_refused));
  }
  if (result.tokens == 0) return absl::UnavailableError("no token came back");
  return absl::OkStatus();
}

std::string ProgressLine(const LoadProgress& progress) {
  return absl::StrFormat(
      "%6.1f s  %10d tokens  %8.1f a second  %6d requests  %4d failed",
      progress.seconds, progress.tokens,
      static_cast<double>(progress.tokens) / progress.seconds,
      progress.requests_ended, progress.requests_failed);
}

}  // namespace flash
