#include "server/server_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/model/language_model.h"
#include "server/sessions/session_limits.h"

ABSL_FLAG(std::string, model, "",
          "The model's directory: config.json, model.safetensors and the "
          "tokenizer's file.\nRequired.");
ABSL_FLAG(std::string, listen, "127.0.0.1:8500",
          "HOST:PORT of the gRPC server. Port 0 takes any that is free.");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:9400",
          "HOST:PORT of the Prometheus metrics, as HTTP at /metrics. Empty: "
          "none.");
ABSL_FLAG(std::string, port_file, "",
          "A file to write HOST:PORT of the gRPC server to, once it serves. "
          "Empty: none.");
ABSL_FLAG(
    std::string, device, "auto",
    "What computes: cpu; cuda, the card with the most free memory; cuda:N, the "
    "card of that number,\nfrom 0; or auto: as cuda where there is a card, "
    "else "
    "cpu, and the log says why.");
ABSL_FLAG(std::string, weights, "auto",
          "How weights are stored: float32, bfloat16, int8, or auto: as in the "
          "checkpoint where the\ndevice is fast at it, float32 otherwise. int8 "
          "rounds weights and activations: half\nthe memory of bfloat16, and "
          "more tokens per second, for a little accuracy.");
ABSL_FLAG(std::string, cache, "auto",
          "How a request's state is stored: float32, bfloat16, or auto: "
          "float32 for float32\nweights, bfloat16 otherwise.");
ABSL_FLAG(std::string, slots, "auto",
          "Requests that run at a time. auto: as many as three quarters of the "
          "memory left after the\nweights hold beside everything else, at most "
          "64; on a card nine tenths of its memory, at most\n256. What memory "
          "is for is told at the start.");
ABSL_FLAG(std::string, threads, "auto",
          "Threads that compute, and with a card those that sample. auto: the "
          "processors that this\nprocess may use (affinity, cgroup).");
ABSL_FLAG(std::string, cpu_isa, "auto",
          "The CPU's kernels: avx512bf16, avx512, avx2, portable, or auto: the "
          "fastest that it has.");
ABSL_FLAG(
    std::string, max_step_rows, "auto",
    "Tokens that one step runs at the most, prompts included. auto: 320, which "
    "are a chunk of 256\nof a prompt beside 64 streams; on a card 1280, four "
    "of them beside 256.");
ABSL_FLAG(int32_t, max_drafted_tokens, 7,
          "Guesses at a stream's next tokens, taken from its text so far, that "
          "one step may verify\nwhile at most 4 streams decode. They change no "
          "token, only when it comes. 0: none.");
ABSL_FLAG(
    std::string, target_step_ms, "auto",
    "Milliseconds that a step may take while prompts run beside streams, "
    "and so the gap between two\ntokens of a stream: prompts get what the "
    "streams leave of it. auto: 2.4 times what the\nstreams take alone.");
ABSL_FLAG(std::string, session_store, "memory",
          "Where sessions are kept: memory, which ends with the server; "
          "dir:PATH, a directory that\nis there, or that can be made; "
          "redis://[:PASSWORD@]HOST[:PORT][/DATABASE]. Servers of the\nsame "
          "model that share a directory or a Redis go on with each other's "
          "sessions. Empty: there\nare no sessions.");
ABSL_FLAG(std::string, session_store_bytes, "auto",
          "Bytes that sessions may take in memory or in a directory; when they "
          "do, no more are taken.\nauto: an eighth of the memory left after "
          "the weights, or 16 GiB in a directory. (Redis has\nits own limit: "
          "maxmemory.)");
ABSL_FLAG(std::string, session_cache_bytes, "auto",
          "Bytes of memory for sessions that were used lately, which then go "
          "on without a look into\nthe store. auto: a sixteenth of the memory "
          "left after the weights.");
ABSL_FLAG(absl::Duration, session_ttl, absl::Hours(24),
          "How long a session lives after it was last used, as in 24h, unless "
          "it is pinned. At most\n30 days.");
ABSL_FLAG(std::string, session_compression, "none",
          "How sessions are written: none, or zstd, which makes them a little "
          "smaller and takes a\nfew milliseconds for each.");
ABSL_FLAG(std::string, prefix_cache_bytes, "auto",
          "Bytes of memory for states of prompts' beginnings, so that a prompt "
          "that begins as an\nearlier one did goes on from there, with the "
          "same answer. auto: an eighth of the memory\nleft after the weights. "
          "0: none are kept.");
ABSL_FLAG(std::string, prefix_cache_sharing, "owner",
          "Who finds what a prompt left in the prefix cache: owner, the same "
          "owner (--tenant_metadata)\nonly; or all, and how long an answer "
          "takes then tells what others have asked.");
ABSL_FLAG(int64_t, checkpoint_every_tokens, 0,
          "A running request of one output leaves its state in the sessions' "
          "store after every so many\ntokens, so that another server that "
          "shares the store goes on from there when this one is\ngone. 0: it "
          "does not, and the other server runs the text again.");
ABSL_FLAG(std::string, tenant_metadata, "",
          "The metadata (HTTP/2 header) that names the owner of a call's "
          "sessions, prefixes and request\nids, as in x-tenant; a call "
          "without it is refused. Whoever reaches the server can send\nany: "
          "it is for a proxy in front that knows its clients, and replaces "
          "what they send. Empty:\neverybody is one owner.");
ABSL_FLAG(int64_t, max_message_bytes, 16 << 20,
          "Bytes that a message from a client may have.");
ABSL_FLAG(int64_t, max_prompt_tokens, 1 << 20,
          "Tokens that a prompt may have.");
ABSL_FLAG(int64_t, max_text_bytes, 4 << 20,
          "Bytes that a text to be tokenised may have; longer ones are sent as "
          "token ids. Tokenising\ntakes some 200 bytes of memory for each.");
ABSL_FLAG(int64_t, max_tokens, 1 << 20, "Tokens that an output may have.");
ABSL_FLAG(int64_t, default_max_tokens, 1024,
          "Tokens that an output may have where the request does not say.");
ABSL_FLAG(int64_t, max_queued_requests, 256,
          "Requests that wait for a slot; more are refused with "
          "RESOURCE_EXHAUSTED.");
ABSL_FLAG(int64_t, max_queued_tokens, 1 << 22,
          "Prompt tokens of the requests that wait; more are refused with "
          "RESOURCE_EXHAUSTED.");
ABSL_FLAG(int32_t, outbox_events, 64,
          "Events that wait for a client that does not read; then its request "
          "pauses. No more tokens are\ndrafted than there is room for.");
ABSL_FLAG(int32_t, max_streams_per_connection, 1024,
          "Calls that one connection may have open; more wait in the client.");
ABSL_FLAG(absl::Duration, slow_reader_timeout, absl::Seconds(30),
          "How long a request may pause for its client, as in 30s; then it "
          "ends.");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(25),
          "How long running requests have to end after SIGTERM, as in 25s; "
          "then they are ended.");
ABSL_FLAG(absl::Duration, stale_after, absl::Seconds(30),
          "Health says NOT_SERVING when the decode loop has not come round for "
          "this long.");

namespace flash {
namespace {

absl::Status Wrong(std::string_view flag, std::string_view value,
                   std::string_view accepted) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", std::string(flag), " is \"", std::string(value),
                   "\"; it must be ", std::string(accepted)));
}

// The first error of all that are asked for.
class Checks {
 public:
  void Add(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  std::optional<DataType> CacheType(const std::string& value) {
    if (value == "float32") return DataType::kFloat32;
    if (value == "bfloat16") return DataType::kBFloat16;
    if (value != "auto") {
      Add(Wrong("cache", value, "auto, float32 or bfloat16"));
    }
    return std::nullopt;
  }

  std::optional<DataType> WeightsType(const std::string& value) {
    if (value == "float32") return DataType::kFloat32;
    if (value == "bfloat16") return DataType::kBFloat16;
    if (value == "int8") return DataType::kInt8;
    if (value != "auto") {
      Add(Wrong("weights", value, "auto, float32, bfloat16 or int8"));
    }
    return std::nullopt;
  }

  std::string Isa(std::string_view flag, const std::string& value) {
    for (const char* name :
         {"auto", "avx512bf16", "avx512", "avx2", "portable"}) {
      if (value == name) return value;
    }
    Add(Wrong(flag, value, "auto, avx512bf16, avx512, avx2 or portable"));
    return value;
  }

  std::optional<int> AutoOr(std::string_view flag, const std::string& value,
                            int least, int most) {
    int number = 0;
    if (value == "auto") return std::nullopt;
    if (!absl::SimpleAtoi(value, &number) || number < least || number > most) {
      Add(Wrong(flag, value,
                absl::StrCat("auto, or from ", least, " to ", most)));
    }
    return number;
  }

  std::optional<std::chrono::nanoseconds> AutoOrMilliseconds(
      std::string_view flag, const std::string& value) {
    double number = 0;
    if (value == "auto") return std::nullopt;
    if (!absl::SimpleAtod(value, &number) ||
        !(number >= 0.001 && number <= 3.6e6)) {
      Add(Wrong(flag, value, "auto, or from 0.001 to 3600000"));
      return std::nullopt;
    }
    return std::chrono::nanoseconds(std::llround(number * 1e6));
  }

  std::optional<int64_t> AutoOrBytes(std::string_view flag,
                                     const std::string& value, int64_t least) {
    constexpr int64_t kMost = int64_t{1} << 50;
    int64_t number = 0;
    if (value == "auto") return std::nullopt;
    if (!absl::SimpleAtoi(value, &number) || number < least || number > kMost) {
      Add(Wrong(flag, value,
                absl::StrCat("auto, or from ", least, " to ", kMost)));
    }
    return number;
  }

  // One of two words: the second?
  bool IsSecond(std::string_view flag, const std::string& value,
                const char* first, const char* second) {
    if (value != first && value != second) {
      Add(Wrong(flag, value, absl::StrCat(first, " or ", second)));
    }
    return value == second;
  }

  int64_t Number(std::string_view flag, int64_t value, int64_t least,
                 int64_t most) {
    if (value < least || value > most) {
      Add(Wrong(flag, absl::StrCat(value),
                absl::StrCat("from ", least, " to ", most)));
    }
    return value;
  }

  std::chrono::nanoseconds Time(std::string_view flag, absl::Duration value,
                                absl::Duration least = absl::ZeroDuration()) {
    if (value < least || value > absl::Hours(24 * 365)) {
      Add(Wrong(
          flag, absl::FormatDuration(value),
          absl::StrCat("from ", absl::FormatDuration(least), " to a year")));
    }
    return absl::ToChronoNanoseconds(value);
  }

  // HOST:PORT, [IPv6]:PORT included.
  std::string Address(std::string_view flag, const std::string& value) {
    const size_t colon = value.rfind(':');
    int port = -1;
    if (colon == std::string::npos || colon == 0 ||
        !absl::SimpleAtoi(value.substr(colon + 1), &port) || port < 0 ||
        port > 65535) {
      Add(Wrong(flag, value, "HOST:PORT, as in 127.0.0.1:8500"));
    }
    return value;
  }

  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

void ReadDeviceFlag(ServerConfig& config, Checks& checks) {
  constexpr std::string_view kCard = "cuda:";
  constexpr int kMostCards = 1024;
  const std::string value = absl::GetFlag(FLAGS_device);
  int card = 0;
  if (value == "cpu") {
    config.device = ServerConfig::Device::kCpu;
  } else if (value == "cuda") {
    config.device = ServerConfig::Device::kCuda;
  } else if (value.starts_with(kCard) &&
             absl::SimpleAtoi(value.substr(kCard.size()), &card) && card >= 0 &&
             card < kMostCards) {
    config.device = ServerConfig::Device::kCuda;
    config.card = card;
  } else if (value != "auto") {
    checks.Add(Wrong("device", value, "auto, cpu, cuda or cuda:N"));
  }
}

void ReadModelFlags(ServerConfig& config, Checks& checks) {
  config.model = absl::GetFlag(FLAGS_model);
  if (config.model.empty()) {
    checks.Add(absl::InvalidArgumentError(
        "--model is not set; it must be the directory of a model"));
  }
  ReadDeviceFlag(config, checks);
  config.weights = checks.WeightsType(absl::GetFlag(FLAGS_weights));
  config.cache = checks.CacheType(absl::GetFlag(FLAGS_cache));
  config.slots = checks.AutoOr("slots", absl::GetFlag(FLAGS_slots), 1, 65536);
  config.threads =
      checks.AutoOr("threads", absl::GetFlag(FLAGS_threads), 1, 1024);
  config.cpu_isa = checks.Isa("cpu_isa", absl::GetFlag(FLAGS_cpu_isa));
  config.max_step_rows = checks.AutoOr(
      "max_step_rows", absl::GetFlag(FLAGS_max_step_rows), 2, 65536);
  config.max_drafted_tokens = static_cast<int>(checks.Number(
      "max_drafted_tokens", absl::GetFlag(FLAGS_max_drafted_tokens), 0,
      kMaxDraftedTokens));
  config.target_step_time = checks.AutoOrMilliseconds(
      "target_step_ms", absl::GetFlag(FLAGS_target_step_ms));
}

void ReadServiceFlags(ServerConfig& config, Checks& checks) {
  constexpr int64_t kMany = int64_t{1} << 40;
  config.listen = checks.Address("listen", absl::GetFlag(FLAGS_listen));
  config.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  if (!config.metrics_listen.empty()) {
    checks.Address("metrics_listen", config.metrics_listen);
  }
  config.port_file = absl::GetFlag(FLAGS_port_file);
  config.max_message_bytes =
      checks.Number("max_message_bytes", absl::GetFlag(FLAGS_max_message_bytes),
                    1024, std::numeric_limits<int32_t>::max());
  config.max_prompt_tokens = checks.Number(
      "max_prompt_tokens", absl::GetFlag(FLAGS_max_prompt_tokens), 1, 1 << 30);
  config.max_text_bytes = checks.Number(
      "max_text_bytes", absl::GetFlag(FLAGS_max_text_bytes), 1, 1 << 30);
  config.max_tokens =
      checks.Number("max_tokens", absl::GetFlag(FLAGS_max_tokens), 1, 1 << 30);
  config.default_max_tokens = checks.Number(
      "default_max_tokens", absl::GetFlag(FLAGS_default_max_tokens), 0,
      std::max<int64_t>(config.max_tokens, 0));
  config.max_queued_requests =
      checks.Number("max_queued_requests",
                    absl::GetFlag(FLAGS_max_queued_requests), 1, kMany);
  config.max_queued_tokens = checks.Number(
      "max_queued_tokens", absl::GetFlag(FLAGS_max_queued_tokens), 1, kMany);
  config.outbox_events = static_cast<int>(checks.Number(
      "outbox_events", absl::GetFlag(FLAGS_outbox_events), 1, 1 << 20));
  config.max_streams_per_connection = static_cast<int>(checks.Number(
      "max_streams_per_connection",
      absl::GetFlag(FLAGS_max_streams_per_connection), 1, 1 << 20));
}

// A key that gRPC takes for metadata of printable values.
bool IsMetadataKey(const std::string& key) {
  return std::all_of(key.begin(), key.end(),
                     [](char c) {
                       return absl::ascii_islower(c) ||
                              absl::ascii_isdigit(c) || c == '-' || c == '_' ||
                              c == '.';
                     }) &&
         !absl::EndsWith(key, "-bin") && !absl::StartsWith(key, "grpc-");
}

void ReadSessionFlags(ServerConfig& config, Checks& checks) {
  config.session_store = absl::GetFlag(FLAGS_session_store);
  const std::string& store = config.session_store;
  if (!store.empty() && store != "memory" && !absl::StartsWith(store, "dir:") &&
      !absl::StartsWith(store, "redis://")) {
    // Not what it is: that may hold a password.
    checks.Add(absl::InvalidArgumentError(
        "--session_store is none of memory, dir:PATH and redis://HOST:PORT"));
  }
  config.session_store_bytes = checks.AutoOrBytes(
      "session_store_bytes", absl::GetFlag(FLAGS_session_store_bytes), 1);
  config.session_cache_bytes = checks.AutoOrBytes(
      "session_cache_bytes", absl::GetFlag(FLAGS_session_cache_bytes), 0);
  const absl::Duration ttl = absl::GetFlag(FLAGS_session_ttl);
  if (ttl < absl::Seconds(1) || ttl > absl::Seconds(kMaxTimeToLiveSeconds)) {
    checks.Add(
        Wrong("session_ttl", absl::FormatDuration(ttl), "from 1s to 720h"));
  }
  config.session_ttl = absl::ToChronoNanoseconds(ttl);
  if (checks.IsSecond("session_compression",
                      absl::GetFlag(FLAGS_session_compression), "none",
                      "zstd")) {
    config.session_compression = SnapshotCompression::kZstd;
  }
  config.prefix_cache_bytes = checks.AutoOrBytes(
      "prefix_cache_bytes", absl::GetFlag(FLAGS_prefix_cache_bytes), 0);
  if (checks.IsSecond("prefix_cache_sharing",
                      absl::GetFlag(FLAGS_prefix_cache_sharing), "owner",
                      "all")) {
    config.prefix_cache_sharing = PrefixCache::Sharing::kAmongAll;
  }
  config.tenant_metadata = absl::GetFlag(FLAGS_tenant_metadata);
  if (!IsMetadataKey(config.tenant_metadata)) {
    checks.Add(Wrong("tenant_metadata", config.tenant_metadata,
                     "lower-case letters, digits, '-', '_' and '.', and "
                     "neither begin with grpc- nor end in -bin"));
  }
}

void ReadCheckpointFlags(ServerConfig& config, Checks& checks) {
  config.checkpoint_every_tokens = checks.Number(
      "checkpoint_every_tokens", absl::GetFlag(FLAGS_checkpoint_every_tokens),
      0, int64_t{1} << 40);
  if (config.checkpoint_every_tokens == 0) return;
  if (config.session_store.empty()) {
    checks.Add(absl::InvalidArgumentError(
        "--checkpoint_every_tokens is set; it needs a --session_store"));
  }
  if (config.prefix_cache_bytes == 0) {
    checks.Add(absl::InvalidArgumentError(
        "--checkpoint_every_tokens is set; what is found goes through the "
        "prefix cache, so --prefix_cache_bytes must be more than 0"));
  }
}

void ReadTimeFlags(ServerConfig& config, Checks& checks) {
  config.slow_reader_timeout = checks.Time(
      "slow_reader_timeout", absl::GetFlag(FLAGS_slow_reader_timeout),
      absl::Milliseconds(1));
  config.drain_timeout =
      checks.Time("drain_timeout", absl::GetFlag(FLAGS_drain_timeout));
  config.stale_after =
      checks.Time("stale_after", absl::GetFlag(FLAGS_stale_after));
}

}  // namespace

Program ServerProgram() {
  return {.name = "flash-server",
          .usage =
              "flash-server --model=DIR [flags]: serves a FLASH language "
              "model over gRPC.",
          .flags_file = __FILE__};
}

absl::StatusOr<ServerConfig> ServerConfigFromFlags() {
  ServerConfig config;
  Checks checks;
  ReadModelFlags(config, checks);
  ReadServiceFlags(config, checks);
  ReadSessionFlags(config, checks);
  ReadCheckpointFlags(config, checks);
  ReadTimeFlags(config, checks);
  if (!checks.status().ok()) return checks.status();
  return config;
}

}  // namespace flash
