// Many sessions against a running server: makes them, goes on with each, and
// compares what they say with the same texts in one go.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "client/error_text.h"
#include "client/flash_client.h"
#include "tests/bench/median.h"

ABSL_FLAG(std::string, server, "", "HOST:PORT");
ABSL_FLAG(int, sessions, 10'000, "how many");
ABSL_FLAG(int, clients, 16, "calls at a time");
ABSL_FLAG(int, prompt_tokens, 40, "of each session's prompt, as ids");
ABSL_FLAG(
    double, max_added_ms, 0,
    "exit 1 if the first token of a session comes so much later than that "
    "of a prompt of one id, by the medians of calls one at a time; 0: no "
    "bound");

namespace flash {
namespace {

constexpr int kTokens = 6;  // of each of a session's two outputs
constexpr int kTimedCalls = 200;

using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

struct Answer {
  grpc::Status status;
  std::vector<uint32_t> ids;
  std::string session;
  uint64_t session_bytes = 0;
  double first_token_ms = 0;
};

class SessionBench {
 public:
  SessionBench(const std::string& server, uint32_t vocab_size)
      : client_(server), vocab_size_(vocab_size) {}

  v1::GenerateRequest Prompt(int number, int prompt_tokens,
                             int max_tokens) const {
    std::mt19937 random(number);
    v1::GenerateRequest request;
    for (int n = 0; n < prompt_tokens; ++n) {
      request.mutable_token_ids()->add_ids(random() % vocab_size_);
    }
    request.mutable_sampling()->set_seed(number);
    request.mutable_stopping()->set_max_tokens(max_tokens);
    request.mutable_stopping()->set_ignore_eos(true);
    return request;
  }

  static v1::GenerateRequest GoOn(const std::string& session) {
    v1::GenerateRequest request;
    request.mutable_session()->set_id(session);
    request.mutable_stopping()->set_max_tokens(kTokens);
    request.mutable_stopping()->set_ignore_eos(true);
    return request;
  }

  Answer Call(const v1::GenerateRequest& request) {
    Answer answer;
    CancellableCall call(std::chrono::minutes(2));
    const auto start = SteadyClock::now();
    answer.status = client_.Generate(request, call, [&](auto& event) {
      if (event.has_token()) {
        if (answer.ids.empty()) {
          answer.first_token_ms = 1e3 * SecondsSince(start);
        }
        answer.ids.push_back(event.token().token().id());
      }
      if (event.has_finished()) {
        answer.session = event.finished().session().id();
        answer.session_bytes = event.finished().session().num_bytes();
      }
    });
    return answer;
  }

 private:
  FlashClient client_;
  const uint32_t vocab_size_;
};

// Of all numbers, several at a time; prints how long it took.
void ForEach(const char* what, int count,
             const std::function<void(int)>& body) {
  const auto start = SteadyClock::now();
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (int n = 0; n < absl::GetFlag(FLAGS_clients); ++n) {
    threads.emplace_back([&] {
      for (int number = next++; number < count; number = next++) body(number);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = SecondsSince(start);
  std::printf("%-28s %8.1f s, %6.0f a second\n", what, seconds,
              count / seconds);
  std::fflush(stdout);
}

int Fail(const std::string& sentence, int status) {
  std::cerr << "flash-session-bench: " << sentence << "\n";
  return status;
}

int Main() {
  const std::string server = absl::GetFlag(FLAGS_server);
  const int count = absl::GetFlag(FLAGS_sessions);
  if (server.empty() || count < 1 || absl::GetFlag(FLAGS_clients) < 1) {
    return Fail("give --server, and at least one session and client", 2);
  }
  FlashClient client(server);
  CancellableCall call;
  v1::ModelInfo model;
  const grpc::Status status = client.GetModelInfo(call, model);
  if (!status.ok()) return Fail(ErrorText(status), 1);
  SessionBench bench(server, model.num_pieces());
  const int prompt_tokens = absl::GetFlag(FLAGS_prompt_tokens);

  std::atomic<int> failed{0};
  std::atomic<int64_t> bytes{0};
  const auto ask = [&](const v1::GenerateRequest& request) {
    Answer answer = bench.Call(request);
    if (!answer.status.ok() && failed++ == 0) {
      std::cerr << ErrorText(answer.status) << "\n";
    }
    return answer;
  };
  std::vector<Answer> begun(count);
  std::vector<Answer> gone_on(count);
  ForEach("begun and saved", count, [&](int n) {
    v1::GenerateRequest request = bench.Prompt(n, prompt_tokens, kTokens);
    request.set_save_session(true);
    begun[n] = ask(request);
    bytes += static_cast<int64_t>(begun[n].session_bytes);
  });
  ForEach("gone on with and saved", count, [&](int n) {
    gone_on[n] = ask(SessionBench::GoOn(begun[n].session));
  });
  std::atomic<int> different{0};
  ForEach("the same texts in one go", count, [&](int n) {
    const Answer whole = ask(bench.Prompt(n, prompt_tokens, 2 * kTokens));
    std::vector<uint32_t> joined = begun[n].ids;
    joined.insert(joined.end(), gone_on[n].ids.begin(), gone_on[n].ids.end());
    if (joined != whole.ids) ++different;
  });

  std::vector<double> of_sessions;
  std::vector<double> of_prompts;
  for (int n = 0; n < kTimedCalls; ++n) {
    of_sessions.push_back(
        ask(SessionBench::GoOn(begun[n * 37 % count].session)).first_token_ms);
    of_prompts.push_back(ask(bench.Prompt(n, 1, kTokens)).first_token_ms);
  }
  const double session_ms = Median(of_sessions);
  const double prompt_ms = Median(of_prompts);
  std::printf(
      "%d sessions, %.1f MB each: %d calls failed, %d texts differ\n"
      "first token of a session %.2f ms, of a prompt of one id %.2f ms\n",
      count, static_cast<double>(bytes) * 1e-6 / count, failed.load(),
      different.load(), session_ms, prompt_ms);
  const double bound = absl::GetFlag(FLAGS_max_added_ms);
  const bool late = bound > 0 && session_ms - prompt_ms > bound;
  if (late) std::printf("that is more than %.2f ms later\n", bound);
  return failed > 0 || different > 0 || late ? 1 : 0;
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Makes many sessions on a server, goes on with each, and checks what "
      "they "
      "say.\n"
      "  flash-session-bench --server=127.0.0.1:8500 --sessions=10000");
  absl::FlagsUsageConfig help;
  help.contains_help_flags = [](absl::string_view file) {
    return absl::EndsWith(file, "/session_bench.cc");
  };
  absl::SetFlagsUsageConfig(help);
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    return flash::Fail("it takes flags only (see --help)", 2);
  }
  return flash::Main();
}
