#include "client/client_flags.h"

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
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

ABSL_FLAG(std::string, server, "127.0.0.1:8500", "HOST:PORT of flash-server.");
ABSL_FLAG(std::string, output, "text",
          "text, or json: one object a line for programs to read.");
ABSL_FLAG(absl::optional<absl::Duration>, timeout, absl::nullopt,
          "How long it all may take, as in 30s. Default: as long as it takes.");
ABSL_FLAG(absl::Duration, wait, absl::ZeroDuration(),
          "How long to wait for the server to take requests, as in 30s.");

ABSL_FLAG(flash::OptionalText, prompt, {}, "generate: the prompt's text.");
ABSL_FLAG(std::string, prompt_file, "",
          "generate: the file that has the prompt's text; - is the standard "
          "input.");
ABSL_FLAG(std::string, prompt_ids, "",
          "generate: the prompt's token ids, as in 1,2,3.");
ABSL_FLAG(absl::optional<uint64_t>, max_tokens, absl::nullopt,
          "generate: tokens that an output may have. Default: the server's.");
ABSL_FLAG(absl::optional<uint64_t>, min_tokens, absl::nullopt,
          "generate: tokens before which an output does not end. Default 0.");
ABSL_FLAG(absl::optional<float>, temperature, absl::nullopt,
          "generate: 0 takes the most likely token. Default 1.");
ABSL_FLAG(absl::optional<uint32_t>, top_k, absl::nullopt,
          "generate: keeps the K most likely tokens. Default: all.");
ABSL_FLAG(absl::optional<float>, top_p, absl::nullopt,
          "generate: keeps the most likely tokens of this total probability. "
          "Default 1.");
ABSL_FLAG(absl::optional<float>, min_p, absl::nullopt,
          "generate: keeps tokens this likely relative to the most likely. "
          "Default 0.");
ABSL_FLAG(absl::optional<float>, repetition_penalty, absl::nullopt,
          "generate: above 1, makes what was said less likely. Default 1.");
ABSL_FLAG(absl::optional<uint64_t>, seed, absl::nullopt,
          "generate: repeats an answer. Default: a random one.");
ABSL_FLAG(absl::optional<uint32_t>, num_outputs, absl::nullopt,
          "generate: outputs for the one prompt; several need --output=json. "
          "Default 1.");
ABSL_FLAG(absl::optional<uint32_t>, logprobs, absl::nullopt,
          "generate: tells the logprob of each token (json), and of the K most "
          "likely in its place.");
ABSL_FLAG(flash::OptionalText, stop, {},
          "generate: the string at which an output ends.");
ABSL_FLAG(bool, ignore_eos, false, "generate: EOS does not end an output.");
ABSL_FLAG(bool, echo, false, "generate: the prompt comes back first.");
ABSL_FLAG(flash::OptionalText, request_id, {},
          "generate, score: names the request in the server's log.");

ABSL_FLAG(std::string, ids, "", "score: token ids, as in 1,2,3.");
ABSL_FLAG(flash::OptionalText, text, {}, "score: the text.");
ABSL_FLAG(std::string, file, "",
          "score: the file that has the text; - is the standard input.");

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

template <typename WireRequest>
absl::Status SetInput(const InputFlags& input, WireRequest& request) {
  const int count =
      input.text.has_value() + !input.file.empty() + !input.ids.empty();
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

}  // namespace

Program ClientProgram() {
  return {.name = "flash-client",
          .usage =
              "flash-client COMMAND [flags]: talks to a flash-server.\n\n"
              "Commands:\n"
              "  generate  continues a prompt, as it is made\n"
              "  score     tells how likely each token of a text is\n"
              "  info      tells what the server has and how it is doing",
          .flags_file = __FILE__,
          .commands = {"generate", "score", "info"}};
}

absl::StatusOr<ClientConfig> ClientConfigFromFlags() {
  ClientConfig config;
  config.server = absl::GetFlag(FLAGS_server);
  const absl::Status server = CheckServer(config.server);
  if (!server.ok()) return server;
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
  absl::Status status = SetInput({.text_flag = "prompt",
                                  .text = absl::GetFlag(FLAGS_prompt).text,
                                  .file_flag = "prompt_file",
                                  .file = absl::GetFlag(FLAGS_prompt_file),
                                  .ids_flag = "prompt_ids",
                                  .ids = absl::GetFlag(FLAGS_prompt_ids)},
                                 request);
  if (status.ok()) status = SetRequestId(request);
  if (status.ok()) status = SetStopping(*request.mutable_stopping());
  if (!status.ok()) return status;
  SetSampling(*request.mutable_sampling());
  SetIf(absl::GetFlag(FLAGS_logprobs),
        [&](uint32_t v) { request.mutable_response()->set_logprobs(v); });
  if (absl::GetFlag(FLAGS_echo)) request.mutable_response()->set_echo(true);
  if (request.sampling().num_outputs() > 1 &&
      absl::GetFlag(FLAGS_output) != "json") {
    return absl::InvalidArgumentError(
        "--num_outputs is more than 1; their texts come at the same time, so "
        "set --output=json, which says what belongs to which");
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
  if (status.ok()) status = SetRequestId(request);
  if (!status.ok()) return status;
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
