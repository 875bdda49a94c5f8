// Notes the calls that a step's operations need, and makes them when it ends;
// the arithmetic is in the kernels.

#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "kernels/cuda/cuda_handles.h"
#include "kernels/cuda/dense_weight.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rounded_inputs.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/cuda/step_calls.h"
#include "kernels/cuda/step_upload.h"
#include "kernels/cuda/waiting_folds.h"
#include "kernels/step_bytes.h"

namespace flash {
namespace cuda {
namespace {

// The kernels are compiled for this compute capability and newer ones.
constexpr int kLeastComputeMajor = 8;

// What a step may be told after its rows, before its first part has to be done.
constexpr size_t kUploadBytes = size_t{1} << 20;

// The functions that are called when a step ends.

cudaError_t ClearReports(RowReport* reports, size_t bytes,
                         cudaStream_t stream) {
  return cudaMemsetAsync(reports, 0, bytes, stream);
}

cudaError_t DownloadReports(void* to, const RowReport* reports, size_t bytes,
                            cudaStream_t stream) {
  return cudaMemcpyAsync(to, reports, bytes, cudaMemcpyDeviceToHost, stream);
}

// The shape is there to tell a product from another that has taken its place in
// memory.
cublasStatus_t RunProduct(const DenseProduct* product, const ProductShape&,
                          const ProductOperands& operands,
                          cudaStream_t stream) {
  return product->Run(operands, stream);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaDevice& device, Stream stream, Blas blas)
      : device_(device), stream_(std::move(stream)), blas_(std::move(blas)) {}

  std::string Describe() const override;
  bool HasFastBFloat16() const override { return true; }

  absl::Status Reserve(const Workload& workload) override;
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override;
  void Upload(std::byte* to, const void* from, size_t bytes) override {
    Transfer("an upload", to, from, bytes, cudaMemcpyHostToDevice);
  }
  void Copy(std::byte* to, const std::byte* from, size_t bytes) override {
    Transfer("a copy", to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void Download(void* to, const std::byte* from, size_t bytes) override {
    Transfer("a download", to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void Zero(std::byte* data, size_t bytes) override;

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
      MatrixView<const float> x) override;

 private:
  // Remembers the first failure.
  void Check(const absl::Status& status) {
    if (failure_.ok()) failure_ = status;
  }
  void Check(std::string_view operation, cudaError_t error) {
    if (error != cudaSuccess) Check(DeviceError(operation, error));
  }

  void UseDevice();
  void Wait();
  void Transfer(std::string_view operation, void* to, const void* from,
                size_t bytes, cudaMemcpyKind kind);

  template <typename Function, typename... Args>
  void Note(std::string_view operation, Function function,
            const Args&... args) {
    NoteSilu();
    calls_.Add(operation, function, args...);
  }

  // SiLU waits for the operation after its product, which may do it as well.
  void NoteSilu();

  // Where a result, `y`, is put for the next product too; null: nowhere.
  uint16_t* RoundAlso(MatrixView<float> y);

  // Puts into the stream what was noted since the last time. The calls of a
  // whole step may be one graph.
  enum class Part { kWholeStep, kFirst };
  void MakeCalls(Part part);

  // Has `items` on the card for the calls to come.
  template <typename T>
  const T* Tell(std::span<const T> items);

  void TellRows();
  const PutOff* TellPutOff(std::span<const Fold> put_off);

  void NoteFolds();

  void CountAttend(const Attention& attention, const LayerState& state);

  absl::Status ReserveSums(int64_t outputs);
  absl::Status ReserveOnHost(size_t bytes);
  void RunInt8(const DenseWeight& weight, MatrixView<const float> x,
               Int8Sums::Epilogue epilogue, MatrixView<float> y);
  void RunFloat(const DenseWeight& weight, MatrixView<const float> x,
                ProductOperands::Into into, MatrixView<float> y);
  void CheckShapes(const DenseWeight& weight, MatrixView<const float> x,
                   MatrixView<float> y) const;

  const CudaDevice device_;
  const Stream stream_;
  const Blas blas_;
  absl::Status failure_;  // the first one

  Workload workload_;
  RoundedInputs inputs_;             // rows of x for bfloat16, int8 weights
  std::unique_ptr<Buffer> scales_;   // [max_rows], of int8 inputs
  std::unique_ptr<Buffer> sums_;     // [max_rows, outputs], of int8 products
  std::unique_ptr<Buffer> weights_;  // [max_rows, Padded(C)], of positions
  std::unique_ptr<Buffer> reports_;  // [max_rows]
  PinnedBytes reports_on_host_;
  std::unique_ptr<StepUpload> upload_;
  PinnedBytes on_host_;  // what OnHost() gave last
  size_t on_host_size_ = 0;
  int64_t max_int8_outputs_ = 0;

  StepRows step_;
  int64_t step_bytes_ = 0;
  int64_t value_bytes_ = 0;  // of one position, in this step
  CallList calls_;
  MatrixView<float> before_silu_;  // no data: there is none
  bool has_bfloat16_ = false;      // weights
  StepGraphs graphs_;
  DeviceRows on_card_;  // the rows of the step
  RowTiles tiles_;
  const RowTile* singles_on_card_ = nullptr;
  const RowTile* tiles_on_card_ = nullptr;
  std::vector<const Fold*> put_off_of_row_;  // [B]; null where there is none
  std::vector<PutOff> put_off_;              // [B]
  WaitingFolds folds_;
};

std::string CudaBackend::Describe() const {
  return absl::StrCat("cuda ", device_.name, ", compute capability ",
                      device_.compute_major, ".", device_.compute_minor,
                      ", cuBLASLt ", cublasLtGetVersion());
}

// The current card is a thread's own affair, and a backend may be made on one
// thread and used on another.
void CudaBackend::UseDevice() {
  if (failure_.ok()) {
    Check("the choice of the card", cudaSetDevice(device_.index));
  }
}

void CudaBackend::Wait() {
  if (failure_.ok()) Check("its work", cudaStreamSynchronize(stream_.get()));
}

void CudaBackend::NoteSilu() {
  const MatrixView<float> y = std::exchange(before_silu_, {});
  if (y.data != nullptr) calls_.Add("a dense product", &ApplySilu, y);
}

uint16_t* CudaBackend::RoundAlso(MatrixView<float> y) {
  if (!has_bfloat16_ || !inputs_.HasRoomFor(y)) {
    inputs_.Overwrite(y);
    return nullptr;
  }
  inputs_.Become(y);
  return inputs_.bfloat16();
}

void CudaBackend::MakeCalls(Part part) {
  NoteSilu();
  inputs_.Forget();  // whoever waits for this may write anywhere
  if (part == Part::kFirst) NoteFolds();
  if (!calls_.empty()) {
    CallList calls = std::exchange(calls_, CallList());
    if (failure_.ok()) Check("an upload", upload_->Send());
    if (failure_.ok()) {
      Check(part == Part::kWholeStep
                ? graphs_.Run(std::move(calls), stream_.get())
                : calls.Run(stream_.get()));
    }
  }
  // How many folds wait at its end is different from step to step: they are no
  // part of a graph.
  if (!folds_.empty()) MakeCalls(Part::kFirst);
}

absl::Status CudaBackend::Reserve(const Workload& workload) {
  workload_ = workload;
  UseDevice();
  const int64_t rows = workload.max_rows;
  const auto reserve = [&](std::unique_ptr<Buffer>& buffer, size_t bytes) {
    absl::StatusOr<std::unique_ptr<Buffer>> memory = Allocate(bytes);
    if (memory.ok()) buffer = *std::move(memory);
    return memory.status();
  };
  std::unique_ptr<Buffer> inputs;
  absl::Status status =
      reserve(inputs, rows * Padded(workload.max_inputs) * sizeof(uint16_t));
  inputs_.SetMemory(std::move(inputs), rows, workload.max_inputs);
  if (status.ok()) status = reserve(scales_, rows * sizeof(float));
  if (status.ok()) {
    status =
        reserve(weights_, rows * Padded(workload.chunk_size) * sizeof(float));
  }
  if (status.ok()) status = reserve(reports_, rows * sizeof(RowReport));
  if (status.ok()) status = ReserveSums(max_int8_outputs_);
  if (!status.ok()) return status;

  absl::StatusOr<PinnedBytes> pinned = AllocatePinned(rows * sizeof(RowReport));
  if (!pinned.ok()) return pinned.status();
  reports_on_host_ = *std::move(pinned);
  status = ReserveOnHost(workload.max_host_numbers * sizeof(float));
  if (!status.ok()) return status;
  const size_t of_rows =
      rows * (sizeof(Row) + sizeof(RowRun) + 2 * sizeof(RowTile));
  auto upload = StepUpload::Create(of_rows + kUploadBytes, stream_.get());
  if (!upload.ok()) return upload.status();
  upload_ = *std::move(upload);
  put_off_.reserve(rows);
  put_off_of_row_.reserve(rows);
  return failure_;
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Allocate(size_t bytes) {
  UseDevice();
  if (!failure_.ok()) return failure_;
  return AllocateOnDevice(bytes, stream_.get());
}

void CudaBackend::Transfer(std::string_view operation, void* to,
                           const void* from, size_t bytes,
                           cudaMemcpyKind kind) {
  UseDevice();
  MakeCalls(Part::kFirst);
  if (!failure_.ok()) return;
  Check(operation, cudaMemcpyAsync(to, from, bytes, kind, stream_.get()));
  if (kind != cudaMemcpyDeviceToDevice) Wait();
}

void CudaBackend::Zero(std::byte* data, size_t bytes) {
  UseDevice();
  MakeCalls(Part::kFirst);
  if (!failure_.ok()) return;
  Check("zeroing memory", cudaMemsetAsync(data, 0, bytes, stream_.get()));
}

absl::StatusOr<std::unique_ptr<Dense>> CudaBackend::MakeDense(
    const DenseSource& source) {
  const absl::StatusOr<std::vector<std::byte>> packed = PackWeights(source);
  if (!packed.ok()) return packed.status();
  absl::StatusOr<std::unique_ptr<Buffer>> memory = Allocate(packed->size());
  if (!memory.ok()) return memory.status();
  Upload((*memory)->data(), packed->data(), packed->size());
  const DenseParts parts(source);
  auto product = DenseProduct::Create(
      blas_.get(),
      {.outputs = parts.outputs, .inputs = source.cols, .type = source.stored},
      reinterpret_cast<const float*>((*memory)->data() + parts.bias));
  if (!product.ok()) return product.status();
  if (source.stored == DataType::kBFloat16) has_bfloat16_ = true;
  if (source.stored == DataType::kInt8) {
    const absl::Status sums = ReserveSums(parts.outputs);
    if (!sums.ok()) return sums;
  }
  if (!failure_.ok()) return failure_;
  return std::make_unique<DenseWeight>(source, *std::move(memory),
                                       *std::move(product));
}

// Sums for the widest matrix of int8 so far, and the most rows: matrices are
// made before Reserve() or after it.
absl::Status CudaBackend::ReserveSums(int64_t outputs) {
  max_int8_outputs_ = std::max(max_int8_outputs_, outputs);
  const size_t bytes = workload_.max_rows * max_int8_outputs_ * sizeof(int32_t);
  if (sums_ != nullptr && sums_->size() >= bytes) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Buffer>> memory = Allocate(bytes);
  if (memory.ok()) sums_ = *std::move(memory);
  return memory.status();
}

void CudaBackend::BeginStep(const StepRows& rows) {
  FLASH_CHECK(static_cast<int64_t>(rows.rows.size()) <= workload_.max_rows);
  UseDevice();
  MakeCalls(Part::kFirst);
  Wait();  // for what the step before this one was told
  step_ = rows;
  step_bytes_ = 0;
  value_bytes_ = 0;
  tiles_.Cut(rows.runs);
  TellRows();
  if (rows.rows.empty()) return;
  Note("BeginStep", &ClearReports, on_card_.reports,
       rows.rows.size() * sizeof(RowReport));
}

void CudaBackend::TellRows() {
  upload_->Clear();
  on_card_ = {.rows = upload_->Put(step_.rows),
              .runs = upload_->Put(step_.runs),
              .reports = reinterpret_cast<RowReport*>(reports_->data()),
              .num_rows = static_cast<int64_t>(step_.rows.size()),
              .num_runs = static_cast<int64_t>(step_.runs.size())};
  singles_on_card_ = upload_->Put(std::span<const RowTile>(tiles_.singles));
  tiles_on_card_ = upload_->Put(std::span<const RowTile>(tiles_.tiles));
}

template <typename T>
const T* CudaBackend::Tell(std::span<const T> items) {
  if (!upload_->HasRoom(items.size_bytes())) {
    // What came before has been used when its calls are done. The rows are
    // told again, to where they are.
    MakeCalls(Part::kFirst);
    Wait();
    TellRows();
  }
  return upload_->Put(items);
}

absl::Status CudaBackend::EndStep(std::span<uint8_t> faults) {
  FLASH_CHECK(faults.size() == step_.rows.size());
  UseDevice();
  if (!faults.empty()) {
    Note("EndStep", &DownloadReports, reports_on_host_.get(), on_card_.reports,
         faults.size() * sizeof(RowReport));
  }
  MakeCalls(Part::kWholeStep);
  Wait();
  if (!failure_.ok()) return failure_;
  const auto* reports = reinterpret_cast<RowReport*>(reports_on_host_.get());
  for (size_t row = 0; row < faults.size(); ++row) {
    faults[row] = reports[row].fault != 0 ? 1 : 0;
    step_bytes_ += reports[row].num_values * value_bytes_;
  }
  return absl::OkStatus();
}

void CudaBackend::Embed(const Embedding& embedding, MatrixView<float> x) {
  const double* frequencies = nullptr;
  if (embedding.position == Embedding::Position::kSinusoidal) {
    frequencies = Tell(std::span<const double>(
        embedding.frequencies, static_cast<size_t>(x.cols / 2)));
  }
  inputs_.Overwrite(x);
  Note("Embed", &cuda::Embed, embedding, frequencies, on_card_, x);
}

void CudaBackend::Normalize(const Norm& norm, MatrixView<const float> x,
                            MatrixView<float> y) {
  Note("Normalize", &cuda::Normalize, norm, x, y, RoundAlso(y));
}

void CudaBackend::ShiftTokens(const LayerState& state, MatrixView<float> y) {
  uint16_t* rounded = nullptr;
  if (inputs_.Are(y)) {
    rounded = RoundAlso(y);
  } else {
    inputs_.Overwrite(y);
  }
  Note("ShiftTokens", &cuda::ShiftTokens, state, on_card_, y, rounded);
}

void CudaBackend::RotaryAngles(const Rotary& rotary, MatrixView<float> cos,
                               MatrixView<float> sin) {
  const double* frequencies = Tell(std::span<const double>(
      rotary.frequencies, static_cast<size_t>(rotary.size / 2)));
  Note("RotaryAngles", &cuda::RotaryAngles, rotary, frequencies, on_card_, cos,
       sin);
}

void CudaBackend::CheckShapes(const DenseWeight& weight,
                              MatrixView<const float> x,
                              MatrixView<float> y) const {
  FLASH_CHECK(x.cols == weight.inputs() && x.rows == y.rows &&
              Padded(y.cols) == weight.outputs() &&
              x.rows <= workload_.max_rows);
}

void CudaBackend::RunInt8(const DenseWeight& weight, MatrixView<const float> x,
                          Int8Sums::Epilogue epilogue, MatrixView<float> y) {
  int8_t* inputs = inputs_.int8();
  auto* scales = reinterpret_cast<float*>(scales_->data());
  auto* sums = reinterpret_cast<int32_t*>(sums_->data());
  inputs_.Forget();
  Note("a dense product", &RoundToInt8, x, inputs, scales);
  Note("a dense product", &RunProduct, &weight.product(),
       weight.product().shape(),
       ProductOperands{.weights = weight.weights(),
                       .x = inputs,
                       .x_stride = Padded(x.cols),
                       .rows = x.rows,
                       .y = sums,
                       .y_stride = weight.outputs()});
  Note("a dense product", &FinishInt8,
       Int8Sums{.sums = sums,
                .x_scales = scales,
                .weight_scales = weight.scales(),
                .bias = weight.bias(),
                .epilogue = epilogue},
       y);
}

void CudaBackend::RunFloat(const DenseWeight& weight, MatrixView<const float> x,
                           ProductOperands::Into into, MatrixView<float> y) {
  ProductOperands operands = {.weights = weight.weights(),
                              .x = x.data,
                              .x_stride = x.row_stride,
                              .rows = x.rows,
                              .y = y.data,
                              .y_stride = y.row_stride,
                              .into = into};
  if (weight.type() == DataType::kBFloat16) {
    uint16_t* inputs = inputs_.bfloat16();
    if (!inputs_.Are(x)) Note("a dense product", &RoundToBFloat16, x, inputs);
    inputs_.Become(x);
    operands.x = inputs;
    operands.x_stride = Padded(x.cols);
  }
  Note("a dense product", &RunProduct, &weight.product(),
       weight.product().shape(), operands);
}

void CudaBackend::Project(const Dense& dense, MatrixView<const float> x,
                          Activation activation, MatrixView<float> y) {
  const auto& weight = static_cast<const DenseWeight&>(dense);
  CheckShapes(weight, x, y);
  step_bytes_ += static_cast<int64_t>(weight.bytes());
  if (x.rows == 0) return;
  inputs_.Overwrite(y);
  const bool silu = activation == Activation::kSilu;
  if (weight.type() == DataType::kInt8) {
    RunInt8(weight, x,
            silu ? Int8Sums::Epilogue::kSilu : Int8Sums::Epilogue::kStore, y);
    return;
  }
  RunFloat(weight, x, ProductOperands::Into::kStore, y);
  if (silu) before_silu_ = y;
}

void CudaBackend::ProjectAndAdd(const Dense& dense, MatrixView<const float> x,
                                MatrixView<float> y) {
  const auto& weight = static_cast<const DenseWeight&>(dense);
  CheckShapes(weight, x, y);
  step_bytes_ += static_cast<int64_t>(weight.bytes());
  if (x.rows == 0) return;
  inputs_.Overwrite(y);
  if (weight.type() == DataType::kInt8) {
    RunInt8(weight, x, Int8Sums::Epilogue::kAdd, y);
  } else {
    RunFloat(weight, x, ProductOperands::Into::kAdd, y);
  }
}

void CudaBackend::AppendHeads(const Attention& attention,
                              const LayerState& state,
                              MatrixView<const float> cos,
                              MatrixView<const float> sin,
                              const HeadRows& heads) {
  if (folds_.Has(state)) NoteFolds();
  AppendOperands operands = {.attention = attention,
                             .state = state,
                             .cos = cos,
                             .sin = sin,
                             .heads = heads,
                             .step = on_card_};
  if (before_silu_ == heads.uvz) {
    operands.before_silu = std::exchange(before_silu_, {}).data;
  }
  inputs_.Overwrite(heads.quad_q);
  inputs_.Overwrite(heads.lin_q);
  Note("AppendHeads", &cuda::AppendHeads, operands);
  step_bytes_ += AppendBytes(attention, state.cache, heads.uvz.rows);
}

// Told in every step, so that steps with and without are the same calls.
const PutOff* CudaBackend::TellPutOff(std::span<const Fold> put_off) {
  put_off_of_row_.assign(step_.rows.size(), nullptr);
  put_off_.assign(step_.rows.size(), PutOff());
  for (const Fold& fold : put_off) {
    for (const RowRun& run : step_.runs) {
      if (step_.rows[run.first_row].slot != fold.slot) continue;
      FLASH_CHECK(run.num_rows == 1 && fold.closes &&
                  fold.last - fold.first <= kMaxPutOff);
      put_off_of_row_[run.first_row] = &fold;
      put_off_[run.first_row] = {fold.first, fold.last, true};
    }
  }
  return Tell(std::span<const PutOff>(put_off_));
}

void CudaBackend::Attend(const Attention& attention, const LayerState& state,
                         const HeadRows& heads, std::span<const Fold> put_off,
                         MatrixView<float> gated) {
  if (folds_.Has(state)) NoteFolds();
  const PutOff* put_off_on_card = TellPutOff(put_off);
  const int64_t positions = Padded(attention.chunk_size);
  const AttendOperands operands = {
      .attention = attention,
      .state = state,
      .heads = heads,
      .step = on_card_,
      .singles = singles_on_card_,
      .num_singles = static_cast<int64_t>(tiles_.singles.size()),
      .tiles = tiles_on_card_,
      .num_tiles = static_cast<int64_t>(tiles_.tiles.size()),
      .put_off = put_off_on_card,
      .weights = {reinterpret_cast<float*>(weights_->data()), gated.rows,
                  positions, positions},
      .gated = gated,
      .rounded = RoundAlso(gated)};
  if (attention.has_quadratic) Note("Attend", &Weigh, operands);
  Note("Attend", &cuda::Attend, operands);
  CountAttend(attention, state);
}

void CudaBackend::CountAttend(const Attention& attention,
                              const LayerState& state) {
  value_bytes_ = ValueBytes(attention, state.cache);
  for (const RowRun& run : step_.runs) {
    const Row& last = step_.rows[run.first_row + run.num_rows - 1];
    step_bytes_ += AttendBytes(attention, state.cache, last,
                               put_off_of_row_[run.first_row]);
    // Of a row alone, the card counts what is not skipped.
    if (attention.has_quadratic && run.num_rows > 1) {
      step_bytes_ += (last.offset + 1) * value_bytes_;
    }
  }
}

void CudaBackend::FoldChunks(const Attention& attention,
                             const LayerState& state,
                             std::span<const Fold> folds) {
  if (folds.empty()) return;
  step_bytes_ += FoldBytes(attention, state.cache, folds);
  if (!folds_.HasRoomFor(attention, state)) NoteFolds();
  folds_.Add(attention, state, folds);
}

void CudaBackend::NoteFolds() {
  constexpr size_t kAtOnce = kUploadBytes / sizeof(FoldTask);
  const FoldShape shape = folds_.shape();
  const std::vector<FoldTask> folds = folds_.Take();
  std::span<const FoldTask> left = folds;
  while (!left.empty()) {
    const std::span<const FoldTask> some =
        left.first(std::min(left.size(), kAtOnce));
    const FoldTask* on_card = Tell(some);
    Note("FoldChunks", &cuda::FoldChunks, shape, on_card,
         static_cast<int64_t>(some.size()));
    left = left.subspan(some.size());
  }
}

void CudaBackend::FindFaults(MatrixView<const float> x) {
  Note("FindFaults", &cuda::FindFaults, x, on_card_);
}

void CudaBackend::GatherRows(std::span<const int32_t> rows,
                             MatrixView<const float> x, MatrixView<float> y) {
  inputs_.Overwrite(y);
  const int32_t* on_card = Tell(rows);
  Note("GatherRows", &cuda::GatherRows, on_card, x,
       y.First(static_cast<int64_t>(rows.size())));
}

absl::Status CudaBackend::ReserveOnHost(size_t bytes) {
  if (bytes <= on_host_size_) return absl::OkStatus();
  absl::StatusOr<PinnedBytes> pinned = AllocatePinned(bytes);
  if (!pinned.ok()) return pinned.status();
  on_host_ = *std::move(pinned);
  on_host_size_ = bytes;
  return absl::OkStatus();
}

absl::StatusOr<MatrixView<const float>> CudaBackend::OnHost(
    MatrixView<const float> x) {
  const absl::Status room =
      ReserveOnHost(x.rows * x.row_stride * sizeof(float));
  if (!room.ok()) return room;
  auto* host = reinterpret_cast<float*>(on_host_.get());
  if (x.rows > 0) {
    const size_t used = ((x.rows - 1) * x.row_stride + x.cols) * sizeof(float);
    Download(host, reinterpret_cast<const std::byte*>(x.data), used);
  }
  if (!failure_.ok()) return failure_;
  return MatrixView<const float>{host, x.rows, x.cols, x.row_stride};
}

}  // namespace
}  // namespace cuda

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(
    const CudaOptions& options) {
  const absl::StatusOr<CudaDevice> found = FindCudaDevice(options.device);
  if (!found.ok()) return found.status();
  const CudaDevice& device = *found;
  if (device.compute_major < cuda::kLeastComputeMajor) {
    return cuda::NoCard(
        absl::StrCat("the ", device.name, " has compute capability ",
                     device.compute_major, ".", device.compute_minor,
                     "; the kernels need ", cuda::kLeastComputeMajor, ".0"));
  }
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaSetDevice(device.index);
  if (error == cudaSuccess) {
    error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  }
  if (error != cudaSuccess) return cuda::NoCard(cudaGetErrorString(error));
  cuda::Stream owned_stream(stream);
  cublasLtHandle_t blas = nullptr;
  const cublasStatus_t blas_error = cublasLtCreate(&blas);
  if (blas_error != CUBLAS_STATUS_SUCCESS) {
    return cuda::NoCard(cublasLtGetStatusString(blas_error));
  }
  return std::make_unique<cuda::CudaBackend>(device, std::move(owned_stream),
                                             cuda::Blas(blas));
}

}  // namespace flash
