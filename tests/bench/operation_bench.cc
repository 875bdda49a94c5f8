// flash-operation-bench: the operations of kernels/backend.h one by one, on the
// shapes of the paper's 112 M model. Flags are those of Google Benchmark.

#include <benchmark/benchmark.h>

#include <memory>
#include <thread>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "server/model/flash_model.h"
#include "tests/bench/preset_model.h"

namespace flash {
namespace {

constexpr int64_t kHidden = 768;
constexpr int64_t kExpanded = 1536;
constexpr int64_t kQueryKey = 128;
constexpr int64_t kChunk = 256;
constexpr int64_t kMaxRows = 256;
constexpr int64_t kUvz = 2 * kExpanded + kQueryKey;

// A matrix of float32 in device memory.
class Matrix {
 public:
  Matrix(Backend& backend, int64_t rows, int64_t cols)
      : memory_(*backend.Allocate(rows * cols * sizeof(float))),
        view_{reinterpret_cast<float*>(memory_->data()), rows, cols, cols} {}
  const MatrixView<float>& view() const { return view_; }

 private:
  std::unique_ptr<Buffer> memory_;
  MatrixView<float> view_;
};

// One layer, one slot, and rows in the slot's second chunk: its last ones.
class Layer {
 public:
  explicit Layer(int64_t num_rows)
      : num_rows_(num_rows),
        pool_(static_cast<int>(std::thread::hardware_concurrency())),
        backend_(*MakeCpuBackend(pool_, "auto")),
        uvz_(*backend_, num_rows, kUvz),
        quad_q_(*backend_, num_rows, kQueryKey),
        lin_q_(*backend_, num_rows, kQueryKey),
        gated_(*backend_, num_rows, kExpanded),
        x_(*backend_, num_rows, kHidden),
        state_memory_(*backend_->Allocate(kU + kSum + 2 * kKeys + kValues)) {
    if (!backend_
             ->Reserve({.max_rows = kMaxRows,
                        .max_inputs = kExpanded,
                        .query_key_size = kQueryKey,
                        .chunk_size = kChunk})
             .ok()) {
      std::abort();
    }
    numbers_.assign(kUvz * kHidden, 0x3c00);  // a small bfloat16
    bias_.assign(kChunk, 1.0f);               // every weight is positive
    head_.assign(4 * kQueryKey, 1.0f);
    attention_ = {.query_key_size = kQueryKey,
                  .expanded_size = kExpanded,
                  .chunk_size = kChunk,
                  .head_scale = head_.data(),
                  .head_offset = head_.data(),
                  .bias = bias_.data()};
    std::byte* at = state_memory_->data();
    state_ = {.u = at,
              .sum = reinterpret_cast<float*>(at + kU),
              .quad_k = at + kU + kSum,
              .lin_k = at + kU + kSum + kKeys,
              .value = at + kU + kSum + 2 * kKeys,
              .cache = DataType::kBFloat16};
    for (int64_t n = 0; n < num_rows; ++n) {
      const auto offset = static_cast<int32_t>(kChunk - num_rows + n);
      rows_.push_back(
          {.offset = offset, .position = kChunk + offset, .linear_scale = 1});
    }
    runs_.push_back({0, static_cast<int32_t>(num_rows)});
    backend_->BeginStep({rows_, runs_});
  }

  std::unique_ptr<Dense> MakeDense(int64_t outputs, int64_t inputs) {
    return *backend_->MakeDense(
        {.segments = {{reinterpret_cast<const std::byte*>(numbers_.data()),
                       outputs}},
         .cols = inputs,
         .type = DataType::kBFloat16,
         .stored = DataType::kBFloat16,
         .bias = {}});
  }
  HeadRows heads() const {
    return {uvz_.view(), quad_q_.view(), lin_q_.view()};
  }

  Backend& backend() { return *backend_; }
  const Attention& attention() const { return attention_; }
  const LayerState& state() const { return state_; }
  const MatrixView<float>& uvz() const { return uvz_.view(); }
  const MatrixView<float>& gated() const { return gated_.view(); }
  const MatrixView<float>& x() const { return x_.view(); }

 private:
  static constexpr int64_t kU = kQueryKey * kExpanded * 2;
  static constexpr int64_t kSum = kQueryKey * kExpanded * 4;
  static constexpr int64_t kKeys = kChunk * kQueryKey * 2;
  static constexpr int64_t kValues = kChunk * kExpanded * 2;

  const int64_t num_rows_;
  ThreadPool pool_;
  std::unique_ptr<Backend> backend_;
  Matrix uvz_, quad_q_, lin_q_, gated_, x_;
  std::unique_ptr<Buffer> state_memory_;
  std::vector<uint16_t> numbers_;
  std::vector<float> bias_;
  std::vector<float> head_;
  Attention attention_;
  LayerState state_;
  std::vector<Row> rows_;
  std::vector<RowRun> runs_;
};

void Count(benchmark::State& state, double products) {
  state.counters["FLOP/s"] =
      benchmark::Counter(2 * products * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

void BM_ProjectUvz(benchmark::State& state) {
  Layer layer(state.range(0));
  const auto dense = layer.MakeDense(kUvz, kHidden);
  for (auto _ : state) {
    layer.backend().Project(*dense, layer.x(), Activation::kSilu, layer.uvz());
  }
  Count(state, static_cast<double>(state.range(0) * kUvz * kHidden));
}

void BM_ProjectOutput(benchmark::State& state) {
  Layer layer(state.range(0));
  const auto dense = layer.MakeDense(kHidden, kExpanded);
  for (auto _ : state) {
    layer.backend().ProjectAndAdd(*dense, layer.gated(), layer.x());
  }
  Count(state, static_cast<double>(state.range(0) * kHidden * kExpanded));
}

void BM_Attend(benchmark::State& state) {
  Layer layer(state.range(0));
  for (auto _ : state) {
    layer.backend().Attend(layer.attention(), layer.state(), layer.heads(), {},
                           layer.gated());
  }
  double products = 0;
  for (int64_t n = 0; n < state.range(0); ++n) {
    products += static_cast<double>((kQueryKey + kExpanded) * (kChunk - n) +
                                    kQueryKey * kExpanded);
  }
  Count(state, products);
}

void BM_FoldChunks(benchmark::State& state) {
  Layer layer(1);
  const Fold fold = {.last = static_cast<int32_t>(state.range(0)),
                     .closes = true};
  for (auto _ : state) {
    layer.backend().FoldChunks(layer.attention(), layer.state(), {&fold, 1});
  }
  Count(state, static_cast<double>(state.range(0) * kQueryKey * kExpanded));
}

BENCHMARK(BM_ProjectUvz)->Arg(1)->Arg(8)->Arg(32)->Arg(256)->UseRealTime();
BENCHMARK(BM_ProjectOutput)->Arg(1)->Arg(8)->Arg(32)->Arg(256)->UseRealTime();
BENCHMARK(BM_Attend)->Arg(1)->Arg(4)->Arg(32)->Arg(256)->UseRealTime();
BENCHMARK(BM_FoldChunks)->Arg(4)->Arg(16)->Arg(256)->UseRealTime();

}  // namespace
}  // namespace flash

BENCHMARK_MAIN();
