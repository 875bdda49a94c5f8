#include "server/log.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/line_writer.h"

namespace flash {
namespace {

double Milliseconds(Clock::duration duration) {
  const auto us =
      std::chrono::duration_cast<std::chrono::microseconds>(duration);
  return static_cast<double>(us.count()) / 1000;
}

// Lines of calls that may wait for whoever reads stderr.
constexpr size_t kMaxWaitingLines = 1024;

// A pipe that nobody empties must not keep the server from stopping.
constexpr std::chrono::seconds kPatience(1);

// Begun by the first line, flushed when the program exits.
LineWriter& Writer() {
  static LineWriter writer(kMaxWaitingLines, [](const std::string& line) {
    std::fwrite(line.data(), 1, line.size(), stderr);
  });
  return writer;
}

}  // namespace

bool Log(std::string_view sentence) {
  return Writer().Write(
      absl::StrCat("flash-server: ", std::string(sentence), "\n"), kPatience);
}

std::string CallLine(const CallReport& report,
                     std::optional<int64_t> trained_length,
                     double unix_seconds) {
  nlohmann::ordered_json line;
  line["time"] = unix_seconds;
  line["event"] = "call";
  line["method"] = report.method;
  line["peer"] = report.peer;
  line["request_id"] = report.request_id;
  line["status"] = absl::StatusCodeToString(report.status.code());
  if (!report.status.ok()) {
    line["message"] = std::string(report.status.message());
  }
  line["prompt_tokens"] = report.usage.prompt_tokens;
  line["cached_prompt_tokens"] = report.usage.cached_prompt_tokens;
  line["completion_tokens"] = report.usage.completion_tokens;
  line["prior_tokens"] = report.usage.prior_tokens;
  line["queue_ms"] = Milliseconds(report.timings.queue);
  line["prompt_ms"] = Milliseconds(report.timings.prompt);
  line["decode_ms"] = Milliseconds(report.timings.decode);
  line["total_ms"] = Milliseconds(report.total);
  if (trained_length.has_value() &&
      report.usage.longest_tokens > *trained_length) {
    line["warning"] =
        absl::StrCat("a text of ", report.usage.longest_tokens,
                     " tokens is longer than those the model was trained on (",
                     *trained_length, ")");
  }
  return line.dump(-1, ' ', true,
                   nlohmann::ordered_json::error_handler_t::replace);
}

void LogCall(const CallReport& report, std::optional<int64_t> trained_length) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  Writer().TryWrite(CallLine(report, trained_length,
                             static_cast<double>(now.count()) / 1000) +
                    "\n");
}

}  // namespace flash
