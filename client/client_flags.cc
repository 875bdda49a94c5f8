#include "client/client_flags.h"

#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/client_commands.h"
#include "client/flag_values.h"
#include "client/read_file.h"

namespace flash {

// A text that may be there and empty: absl::optional takes "" for unset.
struct OptionalText {
  std::optional<std::string> text;
};

bool AbslParseFlag(absl::string_view text, OptionalText* flag, std::string*) {
  flag->text = std::string(text);
  return true;
}

std::string AbslUnparseFlag(const OptionalText& flag) {
  return flag.text.value_or("");
}

}  // namespace flash

ABSL_FLAG(std::string, server, "127.0.0.1:8500",
          "HOST:PORT[,HOST:PORT...] of flash-server. Several are replicas: "
          "generate and chat go on at the next when one is lost; the other "
          "commands ask the first.");
ABSL_FLAG(std::string, output, "text",
          "text, or json: one object a line for programs to read.");
ABSL_FLAG(absl::optional<absl::Duration>, timeout, absl::nullopt,
          "How long it all may take, as in 30s. Default: as long as it takes.");
ABSL_FLAG(absl::Duration, wait, absl::ZeroDuration(),
          "How long to wait for the first server to take requests, as in 30s.");

ABSL_FLAG(bool, resume, true,
          "generate, chat: goes on, bit for bit, when the server or the "
          "connection to it is lost; --noresume fails instead.");
ABSL_FLAG(absl::Duration, resume_timeout, absl::Minutes(1),
          "generate, chat: how long to try to go on.");

ABSL_FLAG(std::string, session, "",
          "generate, chat, session get, session fork, session export, session "
          "delete, session pin: the session's id.\ngenerate goes on from its "
          "text, and the session is the longer one then.");
ABSL_FLAG(bool, save_session, false,
          "generate: keeps the text as a new session, whose id is told.");
ABSL_FLAG(bool, session_unchanged, false,
          "generate: --session stays as it is; with --save_session the longer "
          "text is a new one.");

ABSL_FLAG(flash::OptionalText, prompt, {},
          "generate: the prompt's text; with --session, what is appended.");
ABSL_FLAG(std::string, prompt_file, "",
          "generate: the file that has the prompt's text; - is the standard "
          "input.");
ABSL_FLAG(std::string, prompt_ids, "",
          "generate: the prompt's token ids, as in 1,2,3.");
ABSL_FLAG(
    absl::optional<uint64_t>, max_tokens, absl::nullopt,
    "generate, chat: tokens that an output may have. Default: the server's.");
ABSL_FLAG(
    absl::optional<uint64_t>, min_tokens, absl::nullopt,
    "generate, chat: tokens before which an output does not end. Default 0.");
ABSL_FLAG(absl::optional<float>, temperature, absl::nullopt,
          "generate, chat: 0 takes the most likely token. Default 1.");
ABSL_FLAG(absl::optional<uint32_t>, top_k, absl::nullopt,
          "generate, chat: keeps the K most likely tokens. Default: all.");
ABSL_FLAG(
    absl::optional<float>, top_p, absl::nullopt,
    "generate, chat: keeps the most likely tokens of this total probability. "
    "Default 1.");
ABSL_FLAG(
    absl::optional<float>, min_p, absl::nullopt,
    "generate, chat: keeps tokens this likely relative to the most likely. "
    "Default 0.");
ABSL_FLAG(
    absl::optional<float>, repetition_penalty, absl::nullopt,
    "generate, chat: above 1, makes what was said less likely. Default 1.");
ABSL_FLAG(absl::optional<uint64_t>, seed, absl::nullopt,
          "generate, chat: repeats an answer. Default: a random one.");
ABSL_FLAG(absl::optional<uint32_t>, num_outputs, absl::nullopt,
          "generate: outputs for the one prompt; several need --output=json. "
          "Default 1.");
ABSL_FLAG(absl::optional<uint32_t>, logprobs, absl::nullopt,
          "generate: tells the logprob of each token, and of the K most likely "
          "in its place; needs --output=json.");
ABSL_FLAG(flash::OptionalText, stop, {},
          "generate, chat: the string at which an output ends.");
ABSL_FLAG(bool, ignore_eos, false,
          "generate, chat: EOS does not end an output.");
ABSL_FLAG(bool, echo, false, "generate: the prompt comes back first.");
ABSL_FLAG(
    flash::OptionalText, request_id, {},
    "generate, score, session save: names the request in the server's log; "
    "session save: which request's text.");

ABSL_FLAG(std::string, ids, "", "score: token ids, as in 1,2,3.");
ABSL_FLAG(flash::OptionalText, text, {}, "score: the text.");
ABSL_FLAG(std::string, file, "",
          "score, session export, session import: the file that has the text, "
          "or the session's bytes; - is the standard input or output.");

ABSL_FLAG(flash::OptionalText, prefix, {},
          "chat: stands before each line. A line end that it begins with is "
          "left out where the text begins. Default: a line end.");
ABSL_FLAG(std::string, suffix, "", "chat: stands after each line.");

ABSL_FLAG(uint32_t, output_index, 0,
          "session save: which of the request's outputs.");
ABSL_FLAG(uint32_t, count, 1, "session fork: how many new ones.");
ABSL_FLAG(absl::Duration, time_to_live, absl::ZeroDuration(),
          "session pin: how long it lives after its last use, as in 48h.");

namespace flash {
namespace {

template <typename T, typename Setter>
void SetIf(const absl::optional<T>& value, Setter setter) {
  if (value.has_value()) setter(*value);
}

// A text that is set must have something in it; unset is fine.
absl::Status CheckText(const std::string& flag, const OptionalText& value) {
  if (!value.text.has_value()) return absl::OkStatus();
  if (value.text->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " is empty; leave it out to have none"));
  }
  return CheckUtf8(flag, *value.text);
}

// One of the three ways to give an input, and the flags' names.
struct InputFlags {
  const char* text_flag;
  std::optional<std::string> text;
  const char* file_flag;
  std::string file;
  const char* ids_flag;
  std::string ids;
};

int CountOf(const InputFlags& input) {
  return input.text.has_value() + !input.file.empty() + !input.ids.empty();
}

template <typename WireRequest>
absl::Status SetInput(const InputFlags& input, WireRequest& request) {
  const int count = CountOf(input);
  if (count != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("set one of --", input.text_flag, ", --", input.file_flag,
                     " and --", input.ids_flag, "; ", count, " are set"));
  }
  if (!input.ids.empty()) {
    auto ids = ParseIds(input.ids_flag, input.ids);
    if (!ids.ok()) return ids.status();
    *request.mutable_token_ids()->mutable_ids() = {ids->begin(), ids->end()};
    return absl::OkStatus();
  }
  auto text = input.text.has_value() ? absl::StatusOr<std::string>(*input.text)
                                     : ReadFile(input.file_flag, input.file);
  if (!text.ok()) return text.status();
  const absl::Status valid = CheckUtf8(
      input.text.has_value() ? input.text_flag : input.file_flag, *text);
  if (valid.ok()) request.set_text(*std::move(text));
  return valid;
}

template <typename WireRequest>
absl::Status SetRequestId(WireRequest& request) {
  const OptionalText id = absl::GetFlag(FLAGS_request_id);
  const absl::Status valid = CheckText("request_id", id);
  if (valid.ok() && id.text.has_value()) request.set_request_id(*id.text);
  return valid;
}

absl::Status SetSession(v1::GenerateRequest& request) {
  const std::string id = absl::GetFlag(FLAGS_session);
  const bool unchanged = absl::GetFlag(FLAGS_session_unchanged);
  if (!id.empty()) {
    request.mutable_session()->set_id(id);
    if (unchanged) request.mutable_session()->set_unchanged(true);
  } else if (unchanged) {
    return absl::InvalidArgumentError(
        "--session_unchanged is about a --session, and none is set");
  }
  if (absl::GetFlag(FLAGS_save_session)) request.set_save_session(true);
  return CheckUtf8("session", id);
}

void SetSampling(v1::Sampling& sampling) {
  SetIf(absl::GetFlag(FLAGS_temperature),
        [&](float v) { sampling.set_temperature(v); });
  SetIf(absl::GetFlag(FLAGS_top_k), [&](uint32_t v) { sampling.set_top_k(v); });
  SetIf(absl::GetFlag(FLAGS_top_p), [&](float v) { sampling.set_top_p(v); });
  SetIf(absl::GetFlag(FLAGS_min_p), [&](float v) { sampling.set_min_p(v); });
  SetIf(absl::GetFlag(FLAGS_repetition_penalty),
        [&](float v) { sampling.set_repetition_penalty(v); });
  SetIf(absl::GetFlag(FLAGS_seed), [&](uint64_t v) { sampling.set_seed(v); });
  SetIf(absl::GetFlag(FLAGS_num_outputs),
        [&](uint32_t v) { sampling.set_num_outputs(v); });
}

absl::Status SetStopping(v1::Stopping& stopping) {
  SetIf(absl::GetFlag(FLAGS_max_tokens),
        [&](uint64_t v) { stopping.set_max_tokens(v); });
  SetIf(absl::GetFlag(FLAGS_min_tokens),
        [&](uint64_t v) { stopping.set_min_tokens(v); });
  if (absl::GetFlag(FLAGS_ignore_eos)) stopping.set_ignore_eos(true);
  const OptionalText stop = absl::GetFlag(FLAGS_stop);
  const absl::Status valid = CheckText("stop", stop);
  if (valid.ok() && stop.text.has_value()) {
    stopping.add_stop_strings(*stop.text);
  }
  return valid;
}

absl::StatusOr<std::string> Required(const std::string& flag,
                                     const std::string& value) {
  if (value.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("set --", flag));
  }
  const absl::Status valid = CheckUtf8(flag, value);
  if (!valid.ok()) return valid;
  return value;
}

}  // namespace

Program ClientProgram() {
  std::vector<Command> commands = ClientCommands();
  std::string usage =
      "flash-client COMMAND [flags]: talks to a flash-server.\n\nCommands "
      "(COMMAND --help says more):";
  for (const Command& command : commands) {
    // Its help begins with "flash-client COMMAND [flags]: what it does.".
    const size_t begin = command.help.find(": ") + 2;
    const size_t end = command.help.find_first_of(".\n");
    absl::StrAppendFormat(&usage, "\n  %-14s  %s", command.name,
                          command.help.substr(begin, end - begin));
  }
  return {.name = "flash-client",
          .usage = usage,
          .flags_file = __FILE__,
          .commands = std::move(commands)};
}

absl::StatusOr<ClientConfig> ClientConfigFromFlags() {
  ClientConfig config;
  for (const auto& address : absl::StrSplit(absl::GetFlag(FLAGS_server), ',')) {
    config.servers.emplace_back(absl::StripAsciiWhitespace(address));
    const absl::Status server = CheckServer(config.servers.back());
    if (!server.ok()) return server;
  }
  config.resume.resume = absl::GetFlag(FLAGS_resume);
  const auto patience =
      MillisecondsOf("resume_timeout", absl::GetFlag(FLAGS_resume_timeout));
  if (!patience.ok()) return patience.status();
  config.resume.patience = *patience;
  const std::string output = absl::GetFlag(FLAGS_output);
  if (output != "text" && output != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--output is \"", output, "\"; it must be text or json"));
  }
  config.output = output == "json" ? OutputFormat::kJson : OutputFormat::kText;
  const auto wait = MillisecondsOf("wait", absl::GetFlag(FLAGS_wait));
  if (!wait.ok()) return wait.status();
  config.wait = *wait;
  const absl::optional<absl::Duration> flag = absl::GetFlag(FLAGS_timeout);
  if (flag.has_value()) {
    const auto timeout = MillisecondsOf("timeout", *flag);
    if (!timeout.ok()) return timeout.status();
    config.timeout = *timeout;
  }
  return config;
}

absl::StatusOr<v1::GenerateRequest> GenerateRequestFromFlags() {
  v1::GenerateRequest request;
  const InputFlags input = {.text_flag = "prompt",
                            .text = absl::GetFlag(FLAGS_prompt).text,
                            .file_flag = "prompt_file",
                            .file = absl::GetFlag(FLAGS_prompt_file),
                            .ids_flag = "prompt_ids",
                            .ids = absl::GetFlag(FLAGS_prompt_ids)};
  absl::Status status = SetSession(request);
  const bool appends = request.has_session();
  if (status.ok() && !(appends && CountOf(input) == 0)) {
    status = SetInput(input, request);
  }
  if (status.ok()) status = SetRequestId(request);
  if (status.ok()) status = SetStopping(*request.mutable_stopping());
  if (!status.ok()) return status;
  SetSampling(*request.mutable_sampling());
  SetIf(absl::GetFlag(FLAGS_logprobs),
        [&](uint32_t v) { request.mutable_response()->set_logprobs(v); });
  if (absl::GetFlag(FLAGS_echo)) request.mutable_response()->set_echo(true);
  if (absl::GetFlag(FLAGS_output) == "json") return request;
  if (request.sampling().num_outputs() > 1) {
    return absl::InvalidArgumentError(
        "--num_outputs is more than 1; their texts come at the same time, so "
        "set --output=json, which says what belongs to which");
  }
  if (request.response().has_logprobs()) {
    return absl::InvalidArgumentError(
        "--logprobs is set, and a text has no place for them; set "
        "--output=json too");
  }
  return request;
}

absl::StatusOr<v1::ScoreRequest> ScoreRequestFromFlags() {
  v1::ScoreRequest request;
  absl::Status status = SetInput({.text_flag = "text",
                                  .text = absl::GetFlag(FLAGS_text).text,
                                  .file_flag = "file",
                                  .file = absl::GetFlag(FLAGS_file),
                                  .ids_flag = "ids",
                                  .ids = absl::GetFlag(FLAGS_ids)},
                                 request);
  if (status.ok() && request.has_text() && request.text().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", absl::GetFlag(FLAGS_file).empty() ? "text" : "file",
                     " is empty: there is nothing to score"));
  }
  if (status.ok()) status = SetRequestId(request);
  if (!status.ok()) return status;
  return request;
}

absl::StatusOr<ChatSettings> ChatSettingsFromFlags() {
  ChatSettings settings;
  settings.session = absl::GetFlag(FLAGS_session);
  settings.prefix = absl::GetFlag(FLAGS_prefix).text.value_or("\n");
  settings.suffix = absl::GetFlag(FLAGS_suffix);
  absl::Status status = CheckUtf8("session", settings.session);
  if (status.ok()) status = CheckUtf8("prefix", settings.prefix);
  if (status.ok()) status = CheckUtf8("suffix", settings.suffix);
  if (status.ok()) status = SetStopping(*settings.request.mutable_stopping());
  if (!status.ok()) return status;
  SetSampling(*settings.request.mutable_sampling());
  return settings;
}

absl::StatusOr<std::string> SessionFromFlags() {
  return Required("session", absl::GetFlag(FLAGS_session));
}

absl::StatusOr<std::string> FileFromFlags() {
  return Required("file", absl::GetFlag(FLAGS_file));
}

absl::StatusOr<v1::SaveSessionRequest> SaveSessionRequestFromFlags() {
  const auto id =
      Required("request_id", absl::GetFlag(FLAGS_request_id).text.value_or(""));
  if (!id.ok()) return id.status();
  v1::SaveSessionRequest request;
  request.set_request_id(*id);
  request.set_output_index(absl::GetFlag(FLAGS_output_index));
  return request;
}

absl::StatusOr<v1::ForkSessionRequest> ForkSessionRequestFromFlags() {
  const auto id = SessionFromFlags();
  if (!id.ok()) return id.status();
  v1::ForkSessionRequest request;
  request.set_id(*id);
  request.set_count(absl::GetFlag(FLAGS_count));
  return request;
}

absl::StatusOr<v1::PinSessionRequest> PinSessionRequestFromFlags() {
  const auto id = SessionFromFlags();
  if (!id.ok()) return id.status();
  const absl::Duration time = absl::GetFlag(FLAGS_time_to_live);
  if (time < absl::Seconds(1) || time == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--time_to_live is ", absl::FormatDuration(time),
                     "; it must be at least 1s, as in 48h"));
  }
  v1::PinSessionRequest request;
  request.set_id(*id);
  request.set_time_to_live_seconds(absl::ToInt64Seconds(time));
  return request;
}

absl::StatusOr<std::vector<uint32_t>> ParseIds(const std::string& flag,
                                               const std::string& text) {
  std::vector<uint32_t> ids;
  for (const auto& word : absl::StrSplit(text, ',')) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(word, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " has \"", word,
                       "\"; it must be token ids, as in 1,2,3"));
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace flash
