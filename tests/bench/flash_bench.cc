// flash-bench: the speed of a model's steps on this machine, without a server
// around them.

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "server/model/flash_model.h"
#include "tests/bench/goals.h"
#include "tests/bench/machine_limits.h"
#include "tests/bench/preset_model.h"
#include "tests/bench/step_bench.h"

ABSL_FLAG(std::string, preset, "",
          "random model to measure: 112m (the paper's shape), 500m or tiny; or "
          "demo, the trained one in deploy/models/demo");
ABSL_FLAG(std::string, model, "",
          "directory of a model to measure instead of a preset");
ABSL_FLAG(std::vector<std::string>, batch,
          std::vector<std::string>({"1", "8", "32"}),
          "numbers of requests that decode at once");
ABSL_FLAG(std::string, weights, "bfloat16",
          "type of the dense weights: float32, bfloat16 or int8");
ABSL_FLAG(std::string, cache, "bfloat16",
          "type of chunk and U: float32 or bfloat16");
ABSL_FLAG(std::string, device, "cpu",
          "what computes: cpu, or cuda, the first card that the process sees");
ABSL_FLAG(int, threads, 2, "compute threads of the processor");
ABSL_FLAG(std::string, cpu_isa, "auto", "instruction set of the kernels");
ABSL_FLAG(int, steps, 300,
          "steps to time for each number of requests, at least");
ABSL_FLAG(int, prompt_tokens, 4096, "tokens of the prompt that is timed");
ABSL_FLAG(int, prompts, 0,
          "prompts that are timed side by side, a chunk of each in a step; 0: "
          "one, on a card as many as a step has rows for");
ABSL_FLAG(std::string, goals, "",
          "JSON file of what the report must reach: exit 1 on a miss");
ABSL_FLAG(std::string, write_model, "",
          "write the preset as a model directory of this name, and stop");
ABSL_FLAG(bool, json, false, "print one JSON object instead of a table");
ABSL_FLAG(bool, check_constant_cost, false,
          "measure that a step costs the same for ever, and exit 1 if not: the "
          "median step at position 200,000 within 5 % of that at 2,000, and at "
          "one request, chunk boundaries included, each place of a chunk (the "
          "median of 16 chunks) and p99.9 of all steps within 1.5 times the "
          "median step");

namespace flash {
namespace {

// A step's rows: a chunk of a prompt or 256 requests; on a card those of the
// server's --max_step_rows=auto.
constexpr int kMaxRows = 256;
constexpr int kMaxRowsOfCard = 1280;
// Copied to measure a card: far more than what its cache holds.
constexpr size_t kCardCopyBytes = size_t{1} << 30;

constexpr double kMaxLateToEarly = 1.05;
constexpr double kMaxTailToMedian = 1.5;
constexpr int kChunksToTime = 16;
// Others use this machine too: a round that they disturbed is measured again,
// at most so often in all.
constexpr int kMaxRounds = 8;

int Fail(const std::string& message, int code) {
  std::cerr << "flash-bench: " << message << "\n";
  return code;
}

// A model from a preset or a directory, and what it runs on.
struct Bench {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<FlashModel> model;
};

absl::StatusOr<DataType> ParseType(const std::string& name, bool is_weights) {
  if (name == "float32") return DataType::kFloat32;
  if (name == "bfloat16") return DataType::kBFloat16;
  if (name == "int8" && is_weights) return DataType::kInt8;
  return absl::InvalidArgumentError(absl::StrCat("unknown type \"", name,
                                                 "\"; known: float32, bfloat16",
                                                 is_weights ? ", int8" : ""));
}

bool OnCard() { return absl::GetFlag(FLAGS_device) == "cuda"; }

absl::StatusOr<FlashModel::Options> ModelOptions(int slots) {
  const auto weights = ParseType(absl::GetFlag(FLAGS_weights), true);
  if (!weights.ok()) return weights.status();
  const auto cache = ParseType(absl::GetFlag(FLAGS_cache), false);
  if (!cache.ok()) return cache.status();
  return FlashModel::Options{.weights = *weights,
                             .cache = *cache,
                             .slots = slots,
                             .max_rows = OnCard() ? kMaxRowsOfCard : kMaxRows,
                             .max_logits_rows = kMaxRows};
}

// Empty: a preset that is made in memory.
std::string ModelDirectory() {
  return absl::GetFlag(FLAGS_preset) == "demo" ? FLASH_SOURCE_DIR
             "/deploy/models/demo"
                                               : absl::GetFlag(FLAGS_model);
}

absl::StatusOr<std::unique_ptr<FlashModel>> MakeModel(
    Backend& backend, const FlashModel::Options& options) {
  if (const std::string directory = ModelDirectory(); !directory.empty()) {
    const auto files = ModelFiles::Open(directory);
    if (!files.ok()) return files.status();
    return FlashModel::Create(backend, files->config, files->weights, options);
  }
  const auto preset = PresetModel::Make(absl::GetFlag(FLAGS_preset));
  if (!preset.ok()) return preset.status();
  return FlashModel::Create(backend, (*preset)->config(), (*preset)->weights(),
                            options);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(ThreadPool& pool) {
  return OnCard() ? MakeCudaBackend({})
                  : MakeCpuBackend(pool, absl::GetFlag(FLAGS_cpu_isa));
}

absl::StatusOr<Bench> MakeBench(int slots) {
  Bench bench;
  bench.pool = std::make_unique<ThreadPool>(absl::GetFlag(FLAGS_threads));
  auto backend = MakeBackend(*bench.pool);
  if (!backend.ok()) return backend.status();
  bench.backend = *std::move(backend);
  const auto options = ModelOptions(slots);
  if (!options.ok()) return options.status();
  auto model = MakeModel(*bench.backend, *options);
  if (!model.ok()) return model.status();
  bench.model = *std::move(model);
  return bench;
}

std::unique_ptr<LimitMeter> MakeLimits(const Bench& bench) {
  return OnCard() ? MakeCardLimits(*bench.backend, kCardCopyBytes)
                  : MakeProcessorLimits(*bench.backend, *bench.pool,
                                        bench.model->weight_bytes());
}

// Of --prompts.
int NumPrompts(const FlashModel& model) {
  const int wanted = absl::GetFlag(FLAGS_prompts);
  if (wanted > 0) return std::min(wanted, model.num_slots());
  return OnCard() ? std::clamp(model.max_rows() / model.chunk_size(), 1,
                               model.num_slots())
                  : 1;
}

nlohmann::json DecodeEntry(const DecodeFigures& figures) {
  return {{"batch", figures.batch},
          {"tokens_per_second", figures.tokens_per_second},
          {"cpu_seconds_per_token", figures.cpu_seconds_per_token},
          {"step_ms_p50", figures.step_ms.median},
          {"step_ms_p99", figures.step_ms.p99},
          {"step_ms_max", figures.step_ms.max},
          {"step_ms_max_in_phase", figures.step_ms_max_in_phase},
          {"max_to_median", figures.step_ms.max_to_median},
          {"bytes_per_step", figures.bytes_per_step},
          {"gbps", figures.gbps}};
}

// The machine's limits are measured in turns with the model's figures.
nlohmann::json MeasureAll(const Bench& bench, const std::vector<int>& batches) {
  FlashModel& model = *bench.model;
  const std::unique_ptr<LimitMeter> meter = MakeLimits(bench);
  nlohmann::json report;
  report["device"] = bench.backend->Describe();
  report["weight_bytes"] = model.weight_bytes();
  report["slot_bytes"] = model.slot_bytes();
  for (const int batch : batches) {
    const size_t first = meter->num_reads();
    const DecodeFigures figures = MeasureDecode(
        model, batch, absl::GetFlag(FLAGS_steps), [&] { meter->Read(); });
    nlohmann::json entry = DecodeEntry(figures);
    entry["bandwidth_fraction"] = figures.gbps / meter->ReadBandwidth(first);
    report["decode"].push_back(entry);
    if (batch == 1) {
      report["flatness"]["max_to_median"] = figures.step_ms.max_to_median;
    }
  }
  for (const int rows : {1, 2, 4, 8}) {
    report["runs"].push_back(
        {{"rows", rows}, {"step_ms_p50", MeasureRuns(model, rows)}});
  }
  const int prompts = NumPrompts(model);
  const PromptFigures prompt =
      MeasurePrompt(model, prompts, absl::GetFlag(FLAGS_prompt_tokens),
                    [&] { meter->MultiplyAndAdd(); });
  const std::array<double, 3> far = MeasureFarPositions(model);
  report["prompt"] = {{"prompts", prompts},
                      {"tokens_per_second", prompt.tokens_per_second},
                      {"gflops", prompt.gflops}};
  report["flatness"]["step_ms"] = far;
  report["flatness"]["ratio_1m_to_1k"] = far[2] / far[0];
  report["read_bandwidth_gbps"] = meter->ReadBandwidth(0);
  if (const auto peak = meter->Peak()) {
    report["prompt"]["peak_fraction"] = prompt.gflops / peak->bfloat16;
    report["f32_peak_gflops"] = peak->float32;
    report["bf16_peak_gflops"] = peak->bfloat16;
  }
  return report;
}

void PrintTable(const nlohmann::json& report) {
  const auto number = [](const nlohmann::json& value) {
    return value.get<double>();
  };
  std::printf("%s, %.0f MB of weights, %.1f MB a slot\n",
              report["device"].get<std::string>().c_str(),
              number(report["weight_bytes"]) * 1e-6,
              number(report["slot_bytes"]) * 1e-6);
  if (report.contains("bf16_peak_gflops")) {
    std::printf(
        "this machine: reads %.1f GB/s; multiplies and adds %.0f GFLOP/s in "
        "bfloat16, %.0f in float32\n\n",
        number(report["read_bandwidth_gbps"]),
        number(report["bf16_peak_gflops"]), number(report["f32_peak_gflops"]));
  } else {
    std::printf("this card: copies at %.1f GB/s, reads and writes counted\n\n",
                number(report["read_bandwidth_gbps"]));
  }
  std::printf("%8s %10s %9s %9s %9s %9s %10s %9s %9s\n", "requests", "tokens/s",
              "median ms", "p99 ms", "max ms", "in phase", "max/median",
              "MB/step", "of limit");
  for (const auto& row : report["decode"]) {
    std::printf("%8d %10.0f %9.3f %9.3f %9.3f %9.3f %10.2f %9.1f %9.2f\n",
                row["batch"].get<int>(), number(row["tokens_per_second"]),
                number(row["step_ms_p50"]), number(row["step_ms_p99"]),
                number(row["step_ms_max"]), number(row["step_ms_max_in_phase"]),
                number(row["max_to_median"]),
                number(row["bytes_per_step"]) * 1e-6,
                number(row["bandwidth_fraction"]));
  }
  const auto& prompt = report["prompt"];
  std::printf("\nprompts, %d at once: %.0f tokens/s, %.0f GFLOP/s",
              prompt["prompts"].get<int>(), number(prompt["tokens_per_second"]),
              number(prompt["gflops"]));
  if (prompt.contains("peak_fraction")) {
    std::printf(", %.2f of the peak", number(prompt["peak_fraction"]));
  }
  std::printf("\n");
  const auto& far = report["flatness"]["step_ms"];
  std::printf(
      "one request's median step at position 1,000: %.3f ms, 100,000: %.3f, "
      "1,000,000: %.3f; last to first %.3f\n",
      number(far[0]), number(far[1]), number(far[2]),
      number(report["flatness"]["ratio_1m_to_1k"]));
  for (const auto& row : report["runs"]) {
    std::printf("one request, %d rows a step: median %.3f ms\n",
                row["rows"].get<int>(), number(row["step_ms_p50"]));
  }
}

// 0 if the report reaches the goals of --goals; says what it does not.
int CheckGoals(const nlohmann::json& report) {
  const std::string path = absl::GetFlag(FLAGS_goals);
  if (path.empty()) return 0;
  std::ifstream file(path);
  const nlohmann::json goals =
      nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!goals.is_object()) return Fail(path + " is not a JSON object", 1);
  const std::vector<std::string> missed = MissedGoals(goals, report);
  for (const std::string& sentence : missed) {
    std::cerr << "flash-bench: " << sentence << "\n";
  }
  return missed.empty() ? 0 : 1;
}

bool CheckFlatness(FlashModel& model) {
  for (int round = 0; round < kMaxRounds; ++round) {
    const FlatnessFigures figures = MeasureFlatness(model, 2000, 200000);
    std::printf(
        "median step at position %ld: %.3f ms, at %ld: %.3f ms, "
        "ratio %.3f (at most %.2f)\n",
        static_cast<long>(figures.early), figures.early_ms,
        static_cast<long>(figures.late), figures.late_ms, figures.ratio(),
        kMaxLateToEarly);
    if (figures.ratio() <= kMaxLateToEarly) return true;
  }
  return false;
}

// Passes that only read as many bytes as the model has take turns with the
// steps. Their work never changes, so their tail is what the machine does to
// anybody; it bounds the steps' from below.
bool CheckTail(const Bench& bench) {
  const std::unique_ptr<LimitMeter> meter = MakeLimits(bench);
  for (int round = 0; round < kMaxRounds; ++round) {
    const size_t first_read = meter->num_reads();
    const StepTimes times =
        MeasureOneRequest(*bench.model, kChunksToTime, [&](int n) {
          for (int pass = 0; pass < n; ++pass) meter->Read();
        });
    const double tail = times.p999 / times.median;
    const double tail_of_reading = meter->ReadTail(first_read);
    std::printf(
        "one request: dearest place of a chunk %.2f of the median step (at "
        "most %.2f); p99.9 of all steps %.2f of it (at most %.2f), of reading "
        "%.2f; median %.3f ms, p99 %.3f, max %.3f\n",
        times.max_to_median, kMaxTailToMedian, tail, kMaxTailToMedian,
        tail_of_reading, times.median, times.p99, times.max);
    if (std::max(tail, times.max_to_median) <= kMaxTailToMedian) {
      return true;
    }
  }
  return false;
}

int WriteModel(const std::string& directory) {
  const auto preset = PresetModel::Make(absl::GetFlag(FLAGS_preset));
  if (!preset.ok()) return Fail(std::string(preset.status().message()), 1);
  const absl::Status written = (*preset)->Write(directory);
  return written.ok() ? 0 : Fail(std::string(written.message()), 1);
}

int Main() {
  if (absl::GetFlag(FLAGS_prompt_tokens) < 1 ||
      absl::GetFlag(FLAGS_steps) < 1) {
    return Fail("--prompt_tokens and --steps are at least 1", 2);
  }
  if (absl::GetFlag(FLAGS_device) != "cpu" && !OnCard()) {
    return Fail("--device is cpu or cuda", 2);
  }
  if (absl::GetFlag(FLAGS_preset).empty() ==
      absl::GetFlag(FLAGS_model).empty()) {
    return Fail("give --preset or --model (see --help)", 2);
  }
  if (const std::string directory = absl::GetFlag(FLAGS_write_model);
      !directory.empty()) {
    return WriteModel(directory);
  }
  std::vector<int> batches;
  int slots = 3;
  for (const std::string& text : absl::GetFlag(FLAGS_batch)) {
    int batch = 0;
    if (!absl::SimpleAtoi(text, &batch) || batch < 1 || batch > 256) {
      return Fail("--batch: \"" + text + "\" is not in [1, 256]", 2);
    }
    batches.push_back(batch);
    slots = std::max(slots, batch);
  }
  const absl::StatusOr<Bench> bench = MakeBench(slots);
  if (!bench.ok()) return Fail(std::string(bench.status().message()), 1);
  FlashModel& model = *bench->model;
  if (model.config().max_length.has_value()) {
    return Fail("it jumps to far positions, and this model has a max_length",
                1);
  }
  if (absl::GetFlag(FLAGS_check_constant_cost)) {
    const bool flat = CheckFlatness(model);
    const bool even = CheckTail(*bench);
    return flat && even ? 0 : Fail("a step's cost is not constant", 1);
  }
  const nlohmann::json report = MeasureAll(*bench, batches);
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << report.dump(1) << "\n";
  } else {
    PrintTable(report);
  }
  return CheckGoals(report);
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Times the steps of a model on this machine.\n"
      "  flash-bench --preset=112m --batch=1,8,32\n"
      "  flash-bench --preset=112m --batch=1,8,64,256 --device=cuda\n"
      "  flash-bench --model=deploy/models/demo --check_constant_cost");
  absl::FlagsUsageConfig help;
  help.contains_help_flags = [](absl::string_view file) {
    return absl::EndsWith(file, "/flash_bench.cc");
  };
  help.version_string = [] { return "flash-bench " FLASH_VERSION "\n"; };
  absl::SetFlagsUsageConfig(help);
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    return flash::Fail("it takes flags only (see --help)", 2);
  }
  return flash::Main();
}
