#include "client/loadtest_flags.h"

#include <cmath>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/flag_values.h"
#include "client/read_file.h"

ABSL_FLAG(std::string, server, "127.0.0.1:8500", "HOST:PORT of flash-server.");
ABSL_FLAG(int32_t, sessions, 1,
          "Streams at a time; each asks again when it was answered.");
ABSL_FLAG(int32_t, prompt_tokens, 128,
          "Tokens of each prompt: random ids of the model's vocabulary.");
ABSL_FLAG(std::string, prompt_file, "",
          "A file whose text is the prompt, instead of random ids.");
ABSL_FLAG(uint64_t, max_tokens, 128,
          "Tokens of each answer: EOS does not end it.");
ABSL_FLAG(double, duration, 10,
          "Seconds to measure; what runs then is cut off. 0: until --requests "
          "were answered.\nCtrl-C (SIGINT, SIGTERM) ends it earlier, with a "
          "report.");
ABSL_FLAG(int64_t, requests, 0,
          "Ends when so many requests were answered. 0: only --duration ends "
          "it.");
ABSL_FLAG(double, warmup, 0, "Seconds before anything is measured.");
ABSL_FLAG(float, temperature, 1, "Of all requests; 0 takes the likeliest.");
ABSL_FLAG(uint64_t, seed, 1, "Of prompts and requests.");
ABSL_FLAG(
    double, max_refused, 0.1,
    "The part of the requests, from 0 to 1, that a full queue may refuse: "
    "the exit code\nis 1 if there are more. 1 for a load that is meant to "
    "fill it.");
ABSL_FLAG(std::string, output_json, "",
          "A file to write the result to, as JSON. Empty: none.");
ABSL_FLAG(absl::Duration, wait, absl::ZeroDuration(),
          "How long to wait for the server to take requests, as in 30s.");

namespace flash {
namespace {

absl::Status Wrong(const std::string& flag, double value,
                   const std::string& accepted) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " is ", value, "; it must be ", accepted));
}

absl::Status Check(const LoadSettings& load, double warmup, double duration) {
  if (load.sessions < 1 || load.sessions > 4096) {
    return Wrong("sessions", load.sessions, "from 1 to 4096");
  }
  if (load.prompt_tokens < 1) {
    return Wrong("prompt_tokens", load.prompt_tokens, "at least 1");
  }
  if (load.max_tokens < 1) {
    return Wrong("max_tokens", static_cast<double>(load.max_tokens),
                 "at least 1");
  }
  constexpr double kDay = 86400;
  if (!(warmup >= 0 && warmup <= kDay)) {
    return Wrong("warmup", warmup, "from 0 to 86400 seconds");
  }
  if (!(duration >= 0 && duration <= kDay)) {
    return Wrong("duration", duration, "from 0 to 86400 seconds");
  }
  if (load.requests < 0) {
    return Wrong("requests", static_cast<double>(load.requests), "at least 0");
  }
  if (duration == 0 && load.requests == 0) {
    return absl::InvalidArgumentError(
        "set --duration or --requests, or the load never ends");
  }
  return absl::OkStatus();
}

}  // namespace

Program LoadtestProgram() {
  return {.name = "flash-loadtest",
          .usage =
              "flash-loadtest [flags]: keeps a flash-server busy and "
              "measures how it answers.",
          .flags_file = __FILE__};
}

absl::StatusOr<LoadtestConfig> LoadtestConfigFromFlags() {
  LoadtestConfig config;
  LoadSettings& load = config.load;
  load.server = absl::GetFlag(FLAGS_server);
  const absl::Status server = CheckServer(load.server);
  if (!server.ok()) return server;
  load.sessions = absl::GetFlag(FLAGS_sessions);
  load.prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens);
  load.max_tokens = absl::GetFlag(FLAGS_max_tokens);
  load.temperature = absl::GetFlag(FLAGS_temperature);
  load.seed = absl::GetFlag(FLAGS_seed);
  load.requests = absl::GetFlag(FLAGS_requests);
  const double warmup = absl::GetFlag(FLAGS_warmup);
  const double duration = absl::GetFlag(FLAGS_duration);
  const absl::Status checked = Check(load, warmup, duration);
  if (!checked.ok()) return checked;
  load.warmup = std::chrono::milliseconds(std::llround(warmup * 1000));
  load.duration = std::chrono::milliseconds(std::llround(duration * 1000));
  const std::string path = absl::GetFlag(FLAGS_prompt_file);
  if (!path.empty()) {
    auto text = ReadFile("prompt_file", path);
    if (!text.ok()) return text.status();
    if (text->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--prompt_file is \"", path, "\", which is empty"));
    }
    const absl::Status valid = CheckUtf8("prompt_file", *text);
    if (!valid.ok()) return valid;
    load.prompt_text = *std::move(text);
  }
  config.max_refused = absl::GetFlag(FLAGS_max_refused);
  if (!(config.max_refused >= 0 && config.max_refused <= 1)) {
    return Wrong("max_refused", config.max_refused, "from 0 to 1");
  }
  config.output_json = absl::GetFlag(FLAGS_output_json);
  const auto wait = MillisecondsOf("wait", absl::GetFlag(FLAGS_wait));
  if (!wait.ok()) return wait.status();
  config.wait = *wait;
  return config;
}

}  // namespace flash
