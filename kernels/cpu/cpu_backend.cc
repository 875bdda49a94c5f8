// Divides each operation among threads; the arithmetic is in the kernels. How
// the work is divided changes no bit, so it may depend on anything.

#include "kernels/cpu/cpu_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "kernels/cpu/dense_weight.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/step_bytes.h"

namespace flash {
namespace cpu {
namespace {

// Anonymous pages: zero, and not resident before they are touched. Huge pages
// where the system has them: weights and states are read from end to end.
class HostBuffer final : public Buffer {
 public:
  static absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) {
    void* data =
        mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", bytes, " bytes"));
    }
    madvise(data, bytes, MADV_HUGEPAGE);
    return std::unique_ptr<Buffer>(
        new HostBuffer(static_cast<std::byte*>(data), bytes));
  }
  ~HostBuffer() override { munmap(data(), std::max<size_t>(size(), 1)); }

 private:
  using Buffer::Buffer;
};

// Tasks per thread where a loop can be cut anywhere: enough that a thread which
// is held up does not hold up the loop.
constexpr int64_t kTasksPerThread = 4;

// The same for dense products, which have long loops to be cut.
constexpr int64_t kDenseTasksPerThread = 12;

class CpuBackend final : public Backend {
 public:
  CpuBackend(ThreadPool& pool, const KernelTable& kernels)
      : pool_(pool), kernels_(kernels) {}

  std::string Describe() const override {
    return absl::StrCat("cpu ", kernels_.name, ", ", pool_.num_threads(),
                        pool_.num_threads() == 1 ? " thread" : " threads");
  }

  bool HasFastBFloat16() const override {
    // Widening costs less than the memory traffic that it saves, on every set
    // that has wide registers.
    return std::string(kernels_.name) != "portable";
  }

  absl::Status Reserve(const Workload& workload) override;

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return HostBuffer::Allocate(bytes);
  }
  void Upload(std::byte* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void Copy(std::byte* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void Zero(std::byte* data, size_t bytes) override {
    std::memset(data, 0, bytes);
  }

  absl::StatusOr<std::unique_ptr<Dense>> MakeDense(
      const DenseSource& source) override;

  void BeginStep(const StepRows& rows) override;
  absl::Status EndStep(std::span<uint8_t> faults) override;
  int64_t StepBytes() const override { return step_bytes_; }

  void Embed(const Embedding& embedding, MatrixView<float> x) override;
  void Normalize(const Norm& norm, MatrixView<const float> x,
                 MatrixView<float> y) override;
  void ShiftTokens(const LayerState& state, MatrixView<float> y) override;
  void RotaryAngles(const Rotary& rotary, MatrixView<float> cos,
                    MatrixView<float> sin) override;
  void Project(const Dense& dense, MatrixView<const float> x,
               Activation activation, MatrixView<float> y) override;
  void ProjectAndAdd(const Dense& dense, MatrixView<const float> x,
                     MatrixView<float> y) override;
  void AppendHeads(const Attention& attention, const LayerState& state,
                   MatrixView<const float> cos, MatrixView<const float> sin,
                   const HeadRows& heads) override;
  void Attend(const Attention& attention, const LayerState& state,
              const HeadRows& heads, std::span<const Fold> put_off,
              MatrixView<float> gated) override;
  void FoldChunks(const Attention& attention, const LayerState& state,
                  std::span<const Fold> folds) override;
  void FindFaults(MatrixView<const float> x) override;
  void GatherRows(std::span<const int32_t> rows, MatrixView<const float> x,
                  MatrixView<float> y) override;
  absl::StatusOr<MatrixView<const float>> OnHost(
      MatrixView<const float> x) override {
    return x;
  }

 private:
  // Calls f(row) for each of `rows` rows; on this thread alone if a row costs
  // less than waking another.
  template <typename F>
  void ForEachRow(int64_t rows, F&& f) {
    const int64_t tasks = rows < kFewRows ? 1 : NumTasks(rows);
    pool_.ParallelFor(static_cast<int>(tasks), [&](int task, int) {
      const int64_t last = rows * (task + 1) / tasks;
      for (int64_t row = rows * task / tasks; row < last; ++row) f(row);
    });
  }

  // Into how many tasks `units` units of work are cut.
  int64_t NumTasks(int64_t units) const {
    return std::min<int64_t>(units, pool_.num_threads() * kTasksPerThread);
  }

  // Rows of one run, and panels of their result.
  struct AttendPart {
    RowRun rows;
    int64_t first_panel = 0;
    int64_t last_panel = 0;
    const Fold* put_off = nullptr;
    int64_t num_values = 0;  // positions whose values it read
  };

  void AddAttendParts(const RowRun& run, int64_t cuts, int64_t panels);
  void CountAttend(const Attention& attention, const LayerState& state);

  // Into how many ranges of `panels` panels the work of `tasks` tasks is cut
  // further, so that every thread has some.
  int64_t NumColumnCuts(int64_t tasks, int64_t panels) const {
    const int64_t wanted = (2 * pool_.num_threads() + tasks - 1) / tasks;
    return std::clamp<int64_t>(wanted, 1, panels);
  }

  void RunDense(const Dense& dense, MatrixView<const float> x,
                Epilogue epilogue, MatrixView<float> y);

  float* Scratch(int worker) const {
    return reinterpret_cast<float*>(scratch_[worker]->data());
  }

  static constexpr int64_t kFewRows = 4;

  ThreadPool& pool_;
  const KernelTable& kernels_;
  Workload workload_;
  std::unique_ptr<Buffer> inputs_;   // rows of x for bfloat16, int8 weights
  std::vector<float> input_scales_;  // [max_rows], for int8 weights
  std::vector<std::unique_ptr<Buffer>> scratch_;  // one for each worker

  StepRows step_;
  int64_t step_bytes_ = 0;
  std::vector<uint8_t> faults_;  // [max_rows]
  // What Attend() makes of the step's runs.
  std::unique_ptr<Buffer> weights_;  // [max_rows, Padded(C)]
  std::vector<RowRun> tiles_;
  std::vector<AttendPart> attend_parts_;
};

absl::Status CpuBackend::Reserve(const Workload& workload) {
  workload_ = workload;
  const size_t row_bytes =
      std::max((workload.max_inputs + 1) / 2 * kernels_.input_pair_bytes,
               Padded(workload.max_inputs) / 4 * kernels_.input_quad_bytes);
  auto inputs = HostBuffer::Allocate(workload.max_rows * row_bytes);
  if (!inputs.ok()) return inputs.status();
  inputs_ = *std::move(inputs);
  input_scales_.resize(workload.max_rows);
  const int64_t weights = Padded(workload.chunk_size);  // of a row
  auto all = HostBuffer::Allocate(workload.max_rows * weights * sizeof(float));
  if (!all.ok()) return all.status();
  weights_ = *std::move(all);
  const int64_t attend = (kernels_.tile_rows + 2) * weights +
                         kMaxPutOff * Padded(workload.query_key_size);
  const int64_t fold = kFoldBlock * Padded(workload.query_key_size);
  scratch_.clear();
  for (int worker = 0; worker < pool_.num_threads(); ++worker) {
    auto scratch = HostBuffer::Allocate(std::max(attend, fold) * sizeof(float));
    if (!scratch.ok()) return scratch.status();
    scratch_.push_back(*std::move(scratch));
  }
  faults_.assign(workload.max_rows, 0);
  tiles_.reserve(workload.max_rows);
  attend_parts_.reserve(workload.max_rows *
                        (2 + pool_.num_threads() * kTasksPerThread));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dense>> CpuBackend::MakeDense(
    const DenseSource& source) {
  absl::StatusOr<std::unique_ptr<Buffer>> memory =
      HostBuffer::Allocate(PanelBytes(source));
  if (!memory.ok()) return memory.status();
  const absl::Status packed = PackPanels(source, pool_, (*memory)->data());
  if (!packed.ok()) return packed;
  return std::make_unique<DenseWeight>(source, *std::move(memory));
}

void CpuBackend::BeginStep(const StepRows& rows) {
  FLASH_CHECK(static_cast<int64_t>(rows.rows.size()) <= workload_.max_rows);
  step_ = rows;
  step_bytes_ = 0;
  std::fill_n(faults_.begin(), rows.rows.size(), 0);
}

absl::Status CpuBackend::EndStep(std::span<uint8_t> faults) {
  FLASH_CHECK(faults.size() == step_.rows.size());
  std::copy_n(faults_.begin(), faults.size(), faults.begin());
  return absl::OkStatus();
}

void CpuBackend::Embed(const Embedding& embedding, MatrixView<float> x) {
  ForEachRow(x.rows, [&](int64_t row) {
    kernels_.embed(embedding, step_.rows[row], x.cols, x.Row(row));
  });
}

void CpuBackend::Normalize(const Norm& norm, MatrixView<const float> x,
                           MatrixView<float> y) {
  ForEachRow(x.rows, [&](int64_t row) {
    kernels_.normalize(norm, x.Row(row), x.cols, y.Row(row));
  });
}

void CpuBackend::ShiftTokens(const LayerState& state, MatrixView<float> y) {
  const int64_t half_size = (y.cols + 1) / 2;
  const int64_t kept_stride = Padded(half_size);
  const int64_t runs = static_cast<int64_t>(step_.runs.size());
  ForEachRow(runs, [&](int64_t index) {
    const RowRun& run = step_.runs[index];
    const size_t slot = step_.rows[run.first_row].slot * state.slot_stride;
    float* kept = reinterpret_cast<float*>(
        reinterpret_cast<std::byte*>(state.shift) + slot);
    for (int32_t row = run.first_row; row < run.first_row + run.num_rows;
         ++row) {
      const int64_t position = step_.rows[row].position;
      float* half = y.Row(row);
      std::copy_n(half, half_size, kept + position % kShiftRows * kept_stride);
      if (position == 0) {
        std::fill_n(half, half_size, 0.0f);
      } else {
        std::copy_n(kept + (position - 1) % kShiftRows * kept_stride, half_size,
                    half);
      }
    }
  });
}

void CpuBackend::RotaryAngles(const Rotary& rotary, MatrixView<float> cos,
                              MatrixView<float> sin) {
  ForEachRow(cos.rows, [&](int64_t row) {
    const Row& place = step_.rows[row];
    const double position = rotary.position == Rotary::Position::kSequence
                                ? static_cast<double>(place.position)
                                : static_cast<double>(place.offset);
    for (int64_t k = 0; k < rotary.size / 2; ++k) {
      const double angle = position * rotary.frequencies[k];
      cos.Row(row)[k] = static_cast<float>(std::cos(angle));
      sin.Row(row)[k] = static_cast<float>(std::sin(angle));
    }
  });
}

void CpuBackend::RunDense(const Dense& dense, MatrixView<const float> x,
                          Epilogue epilogue, MatrixView<float> y) {
  const auto& weight = static_cast<const DenseWeight&>(dense);
  FLASH_CHECK(x.cols == weight.inputs() && x.rows == y.rows &&
              Padded(y.cols) == weight.outputs() &&
              x.rows <= workload_.max_rows);
  DenseTask task = {.panels = weight.panels(),
                    .bias = weight.bias(),
                    .inputs = weight.inputs(),
                    .outputs = weight.outputs(),
                    .x = reinterpret_cast<const std::byte*>(x.data),
                    .x_stride = x.row_stride * sizeof(float),
                    .epilogue = epilogue,
                    .y = y};
  auto kernel = kernels_.dense_float32;
  if (weight.type() == DataType::kBFloat16) {
    kernel = kernels_.dense_bfloat16;
    task.x = inputs_->data();
    task.x_stride = (weight.inputs() + 1) / 2 * kernels_.input_pair_bytes;
    ForEachRow(x.rows, [&](int64_t row) {
      kernels_.pack_inputs(x.Row(row), x.cols,
                           inputs_->data() + row * task.x_stride);
    });
  } else if (weight.type() == DataType::kInt8) {
    kernel = kernels_.dense_int8;
    task.x = inputs_->data();
    task.x_stride = Padded(weight.inputs()) / 4 * kernels_.input_quad_bytes;
    task.x_scales = input_scales_.data();
    ForEachRow(x.rows, [&](int64_t row) {
      input_scales_[row] = kernels_.round_inputs(
          x.Row(row), x.cols, inputs_->data() + row * task.x_stride);
    });
  }
  step_bytes_ += static_cast<int64_t>(weight.bytes());
  const int64_t panels = weight.num_panels();
  const int64_t tasks =
      std::min(panels, int64_t{pool_.num_threads()} * kDenseTasksPerThread);
  pool_.ParallelFor(static_cast<int>(tasks), [&](int index, int) {
    DenseTask part = task;
    part.first_panel = panels * index / tasks;
    part.last_panel = panels * (index + 1) / tasks;
    kernel(part);
  });
}

void CpuBackend::Project(const Dense& dense, MatrixView<const float> x,
                         Activation activation, MatrixView<float> y) {
  RunDense(dense, x,
           activation == Activation::kSilu ? Epilogue::kSilu : Epilogue::kStore,
           y);
}

void CpuBackend::ProjectAndAdd(const Dense& dense, MatrixView<const float> x,
                               MatrixView<float> y) {
  RunDense(dense, x, Epilogue::kAdd, y);
}

void CpuBackend::AppendHeads(const Attention& attention,
                             const LayerState& state,
                             MatrixView<const float> cos,
                             MatrixView<const float> sin,
                             const HeadRows& heads) {
  ForEachRow(heads.uvz.rows, [&](int64_t row) {
    const bool finite = kernels_.append_heads({.attention = &attention,
                                               .state = &state,
                                               .heads = &heads,
                                               .rows = step_.rows.data(),
                                               .row = row,
                                               .cos = cos.Row(row),
                                               .sin = sin.Row(row)});
    if (!finite) faults_[row] = 1;
  });
  step_bytes_ += AppendBytes(attention, state.cache, heads.uvz.rows);
}

void CpuBackend::AddAttendParts(const RowRun& run, int64_t cuts,
                                int64_t panels) {
  for (int64_t cut = 0; cut < cuts; ++cut) {
    attend_parts_.push_back({.rows = run,
                             .first_panel = panels * cut / cuts,
                             .last_panel = panels * (cut + 1) / cuts});
  }
}

void CpuBackend::Attend(const Attention& attention, const LayerState& state,
                        const HeadRows& heads, std::span<const Fold> put_off,
                        MatrixView<float> gated) {
  const int64_t panels =
      (attention.expanded_size + Panels::kWidth - 1) / Panels::kWidth;
  const int64_t weight_stride = Padded(attention.chunk_size);
  AttendTask whole = {.attention = &attention,
                      .state = &state,
                      .heads = &heads,
                      .gated = gated,
                      .rows = step_.rows.data()};
  const auto is_long = [&](const RowRun& run) {
    return run.num_rows > kernels_.tile_rows;
  };
  const auto shared_weights = [&](int64_t row) {
    return reinterpret_cast<float*>(weights_->data()) + row * weight_stride;
  };
  // Long runs come first: their weights are made once, tile by tile, and then
  // each panel of values serves all of their rows.
  tiles_.clear();
  attend_parts_.clear();
  for (const RowRun& run : step_.runs) {
    if (!is_long(run)) continue;
    for (int32_t at = 0; at < run.num_rows; at += kernels_.tile_rows) {
      tiles_.push_back({run.first_row + at,
                        std::min(run.num_rows - at, kernels_.tile_rows)});
    }
    AddAttendParts(run, NumTasks(panels), panels);
  }
  if (attention.has_quadratic) {
    pool_.ParallelFor(static_cast<int>(tiles_.size()), [&](int index, int) {
      AttendTask task = whole;
      task.first_row = tiles_[index].first_row;
      task.num_rows = tiles_[index].num_rows;
      task.weights = shared_weights(task.first_row);
      kernels_.weigh(task);
    });
  }
  // Of a short one, every part makes all of the weights for itself: that costs
  // less than a barrier.
  const int64_t cuts = NumColumnCuts(step_.runs.size(), panels);
  for (const RowRun& run : step_.runs) {
    if (!is_long(run)) AddAttendParts(run, cuts, panels);
  }
  for (const Fold& fold : put_off) {
    for (AttendPart& part : attend_parts_) {
      if (step_.rows[part.rows.first_row].slot != fold.slot) continue;
      FLASH_CHECK(part.rows.num_rows == 1 && fold.closes &&
                  fold.last - fold.first <= kMaxPutOff);
      part.put_off = &fold;
    }
  }
  const int parts = static_cast<int>(attend_parts_.size());
  pool_.ParallelFor(parts, [&](int index, int worker) {
    AttendPart& part = attend_parts_[index];
    AttendTask task = whole;
    task.first_row = part.rows.first_row;
    task.num_rows = part.rows.num_rows;
    task.first_col = part.first_panel * Panels::kWidth;
    task.last_col = part.last_panel * Panels::kWidth;
    task.put_off = part.put_off;
    task.scratch = Scratch(worker);
    if (is_long(part.rows)) {
      task.weights = shared_weights(task.first_row);
    } else {
      task.weights = task.scratch + 2 * weight_stride +
                     kMaxPutOff * Padded(attention.query_key_size);
      if (attention.has_quadratic) kernels_.weigh(task);
    }
    part.num_values = kernels_.attend(task);
  });
  CountAttend(attention, state);
}

void CpuBackend::CountAttend(const Attention& attention,
                             const LayerState& state) {
  for (const AttendPart& part : attend_parts_) {
    if (part.first_panel != 0) continue;  // one part of each run
    const Row& last = step_.rows[part.rows.first_row + part.rows.num_rows - 1];
    step_bytes_ += AttendBytes(attention, state.cache, last, part.put_off) +
                   part.num_values * ValueBytes(attention, state.cache);
  }
}

void CpuBackend::FoldChunks(const Attention& attention, const LayerState& state,
                            std::span<const Fold> folds) {
  if (folds.empty()) return;
  step_bytes_ += FoldBytes(attention, state.cache, folds);
  const int64_t num_folds = static_cast<int64_t>(folds.size());
  const int64_t panels =
      (attention.expanded_size + Panels::kWidth - 1) / Panels::kWidth;
  const int64_t cuts = NumColumnCuts(num_folds, panels);
  pool_.ParallelFor(
      static_cast<int>(num_folds * cuts), [&](int index, int worker) {
        const int64_t cut = index % cuts;
        kernels_.fold({.attention = &attention,
                       .state = &state,
                       .fold = folds[index / cuts],
                       .first_col = panels * cut / cuts * Panels::kWidth,
                       .last_col = panels * (cut + 1) / cuts * Panels::kWidth,
                       .scratch = Scratch(worker)});
      });
}

void CpuBackend::FindFaults(MatrixView<const float> x) {
  ForEachRow(x.rows, [&](int64_t row) {
    if (!kernels_.all_finite(x.Row(row), Padded(x.cols))) faults_[row] = 1;
  });
}

void CpuBackend::GatherRows(std::span<const int32_t> rows,
                            MatrixView<const float> x, MatrixView<float> y) {
  for (size_t n = 0; n < rows.size(); ++n) {
    std::memcpy(y.Row(n), x.Row(rows[n]), Padded(x.cols) * sizeof(float));
  }
}

}  // namespace
}  // namespace cpu

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(
    ThreadPool& pool, const std::string& isa) {
  const absl::StatusOr<const cpu::KernelTable*> kernels = cpu::FindKernels(isa);
  if (!kernels.ok()) return kernels.status();
  return std::make_unique<cpu::CpuBackend>(pool, **kernels);
}

}  // namespace flash
