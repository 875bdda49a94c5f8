// flash-bench: the speed of a model's steps on this machine, without a server
// around them.

#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/model/flash_model.h"
#include "tests/bench/preset_model.h"
#include "tests/bench/step_bench.h"

ABSL_FLAG(std::string, preset, "",
          "random model to measure: 112m (the paper's shape) or tiny");
ABSL_FLAG(std::string, model, "",
          "directory of a model to measure instead of a preset");
ABSL_FLAG(std::vector<std::string>, batch,
          std::vector<std::string>({"1", "8", "32"}),
          "numbers of requests that decode at once");
ABSL_FLAG(std::string, weights, "bfloat16",
          "type of the dense weights: float32 or bfloat16");
ABSL_FLAG(std::string, cache, "bfloat16",
          "type of chunk and U: float32 or bfloat16");
ABSL_FLAG(int, threads, 2, "compute threads");
ABSL_FLAG(std::string, cpu_isa, "auto", "instruction set of the kernels");
ABSL_FLAG(int, steps, 300, "steps to time for each number of requests");
ABSL_FLAG(std::string, write_model, "",
          "write the preset as a model directory of this name, and stop");
ABSL_FLAG(bool, json, false, "print one JSON object instead of a table");
ABSL_FLAG(bool, check_constant_cost, false,
          "measure that a step costs the same for ever, and exit 1 if not: the "
          "median step at position 200,000 within 5 % of that at 2,000, and at "
          "one request p99.9 within 1.5 times the median, chunk boundaries "
          "included");

namespace flash {
namespace {

constexpr double kMaxLateToEarly = 1.05;
constexpr double kMaxTailToMedian = 1.5;
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

absl::StatusOr<DataType> ParseType(const std::string& name) {
  if (name == "float32") return DataType::kFloat32;
  if (name == "bfloat16") return DataType::kBFloat16;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown type \"", name, "\"; known: float32, bfloat16"));
}

absl::StatusOr<FlashModel::Options> ModelOptions(int slots) {
  const auto weights = ParseType(absl::GetFlag(FLAGS_weights));
  if (!weights.ok()) return weights.status();
  const auto cache = ParseType(absl::GetFlag(FLAGS_cache));
  if (!cache.ok()) return cache.status();
  return FlashModel::Options{
      .weights = *weights, .cache = *cache, .slots = slots};
}

absl::StatusOr<std::unique_ptr<FlashModel>> MakeModel(
    Backend& backend, const FlashModel::Options& options) {
  if (const std::string directory = absl::GetFlag(FLAGS_model);
      !directory.empty()) {
    const auto files = ModelFiles::Open(directory);
    if (!files.ok()) return files.status();
    return FlashModel::Create(backend, files->config, files->weights, options);
  }
  const auto preset = PresetModel::Make(absl::GetFlag(FLAGS_preset));
  if (!preset.ok()) return preset.status();
  return FlashModel::Create(backend, (*preset)->config(), (*preset)->weights(),
                            options);
}

absl::StatusOr<Bench> MakeBench(int slots) {
  Bench bench;
  bench.pool = std::make_unique<ThreadPool>(absl::GetFlag(FLAGS_threads));
  auto backend = MakeCpuBackend(*bench.pool, absl::GetFlag(FLAGS_cpu_isa));
  if (!backend.ok()) return backend.status();
  bench.backend = *std::move(backend);
  const auto options = ModelOptions(slots);
  if (!options.ok()) return options.status();
  auto model = MakeModel(*bench.backend, *options);
  if (!model.ok()) return model.status();
  bench.model = *std::move(model);
  return bench;
}

nlohmann::json MeasureAll(FlashModel& model, const std::vector<int>& batches) {
  nlohmann::json report;
  for (const int batch : batches) {
    const DecodeFigures figures =
        MeasureDecode(model, batch, absl::GetFlag(FLAGS_steps));
    report["decode"].push_back(
        {{"batch", figures.batch},
         {"tokens_per_second", figures.tokens_per_second},
         {"cpu_seconds_per_token", figures.cpu_seconds_per_token},
         {"step_ms_p50", figures.step_ms.median},
         {"step_ms_p99", figures.step_ms.p99},
         {"step_ms_max", figures.step_ms.max}});
  }
  report["prompt"]["tokens_per_second"] =
      MeasurePrompt(model, 16 * model.chunk_size());
  return report;
}

void PrintTable(const nlohmann::json& report) {
  std::printf("%8s %12s %12s %12s %12s\n", "requests", "tokens/s", "median ms",
              "p99 ms", "max ms");
  for (const auto& row : report["decode"]) {
    std::printf("%8d %12.0f %12.3f %12.3f %12.3f\n", row["batch"].get<int>(),
                row["tokens_per_second"].get<double>(),
                row["step_ms_p50"].get<double>(),
                row["step_ms_p99"].get<double>(),
                row["step_ms_max"].get<double>());
  }
  std::printf("%8s %12.0f\n", "prompt",
              report["prompt"]["tokens_per_second"].get<double>());
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

bool CheckTail(FlashModel& model) {
  for (int round = 0; round < kMaxRounds; ++round) {
    const StepTimes times = MeasureOneRequest(model, 2000);
    std::printf(
        "one request: median %.3f ms, p99 %.3f, p99.9 %.3f, max %.3f; "
        "p99.9 / median %.2f (at most %.2f)\n",
        times.median, times.p99, times.p999, times.max,
        times.p999 / times.median, kMaxTailToMedian);
    if (times.p999 <= kMaxTailToMedian * times.median) return true;
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
  if (absl::GetFlag(FLAGS_preset).empty() ==
      absl::GetFlag(FLAGS_model).empty()) {
    return Fail("give --preset or --model (see --help)", 2);
  }
  if (const std::string directory = absl::GetFlag(FLAGS_write_model);
      !directory.empty()) {
    return WriteModel(directory);
  }
  std::vector<int> batches;
  int slots = 2;
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
  if (absl::GetFlag(FLAGS_check_constant_cost)) {
    const bool flat = CheckFlatness(model);
    const bool even = CheckTail(model);
    return flat && even ? 0 : Fail("a step's cost is not constant", 1);
  }
  const nlohmann::json report = MeasureAll(model, batches);
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << report.dump(1) << "\n";
  } else {
    std::printf("%s, %.0f MB of weights, %.1f MB a slot\n",
                bench->backend->Describe().c_str(), model.weight_bytes() * 1e-6,
                static_cast<double>(model.slot_bytes()) * 1e-6);
    PrintTable(report);
  }
  return 0;
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Times the steps of a model on this machine.\n"
      "  flash-bench --preset=112m --batch=1,8,32\n"
      "  flash-bench --model=deploy/models/demo --check_constant_cost");
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    return flash::Fail("it takes flags only (see --help)", 2);
  }
  return flash::Main();
}
