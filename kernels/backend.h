// What a FLASH model asks of a device: memory, and one function per operation.
//
// This file is the whole border between the model and the hardware. The network
// (server/model/network.h) is written once, against Backend; kernels/cpu
// implements it; the server picks one at start-up and nothing asks again.
//
// Shapes: B rows (the tokens of one step), D model width, E expanded width,
// S query/key width, C chunk length, L layers, V vocabulary. All arithmetic
// accumulates in float32, but for int8 weights: see DenseSource.
//
// Padding: a matrix of n columns is stored with Padded(n) columns to a row, and
// each row begins on a 64-byte line. Padding columns of operands are zero.
//
// Determinism: each element of each result is one fixed expression of its
// inputs. It does not depend on how many rows there are, on where a row stands
// among them, on the number of threads, or on the way a position's keys and
// values came into the chunk.

#ifndef KERNELS_BACKEND_H_
#define KERNELS_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/operands.h"
#include "kernels/tensor.h"

namespace flash {

// Zeroed device memory, aligned to a cache line; given back when destroyed.
// Must not outlive its backend.
class Buffer {
 public:
  virtual ~Buffer() = default;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 protected:
  Buffer(std::byte* data, size_t size) : data_(data), size_(size) {}

 private:
  std::byte* const data_;
  const size_t size_;
};

// Some rows of a weight matrix in host memory, [rows, cols] as in the
// checkpoint; `data` need not be aligned.
struct WeightRows {
  const std::byte* data = nullptr;
  int64_t rows = 0;
};

// A weight matrix and its bias as the checkpoint has them. The output of each
// segment begins at a multiple of 16 columns: a row of the result is the
// segments' results one after the other, each Padded(rows) wide.
//
// Stored as int8, an output's weights w become a scale, max |w| / 127, and the
// integers nearest to w * (1 / scale), ties to even. Each row of x becomes the
// same when it is multiplied, and
//   y = sum * (row's scale * output's scale) + bias
// with the exact sum of the integers' products, all else in float32 as it
// stands. A scale below 2^-100 counts as 0, as do the numbers behind it.
struct DenseSource {
  std::vector<WeightRows> segments;
  int64_t cols = 0;
  DataType type = DataType::kFloat32;  // of the checkpoint's numbers
  // What to keep: float32, bfloat16 or int8.
  DataType stored = DataType::kFloat32;
  std::vector<float> bias;  // [sum of rows], or empty
};

// The deepest product of int8 whose sum is certain to be within an int32.
inline constexpr int64_t kMaxInt8Inputs = INT32_MAX / (127 * 127);

// A weight matrix on the device, in the order that the kernels want.
class Dense {
 public:
  virtual ~Dense() = default;
  int64_t outputs() const { return outputs_; }  // padding included
  int64_t inputs() const { return inputs_; }
  size_t bytes() const { return bytes_; }  // what a step reads of it

 protected:
  Dense(int64_t outputs, int64_t inputs, size_t bytes)
      : outputs_(outputs), inputs_(inputs), bytes_(bytes) {}

 private:
  const int64_t outputs_;
  const int64_t inputs_;
  const size_t bytes_;
};

// The rows of one step. The spans stay valid until the step has ended.
struct StepRows {
  std::span<const Row> rows;
  std::span<const RowRun> runs;  // in the order of their rows, covering all
};

// The largest sizes that will be asked for: scratch memory is taken once.
struct Workload {
  int64_t max_rows = 0;
  int64_t max_inputs = 0;  // of any Dense
  int64_t query_key_size = 0;
  int64_t chunk_size = 0;
  int64_t max_host_numbers = 0;  // that OnHost() gives at a time
};

// Thread safety: one thread at a time.
//
// Operations are done in the order of their calls, and may be done later: what
// they write is there after EndStep() or a Download(). What they read of the
// host, but for StepRows, is read at once.
//
// Errors: a wrong shape is a bug in the caller and aborts. A device failure is
// remembered, later operations do nothing, and EndStep() reports it.
class Backend {
 public:
  virtual ~Backend() = default;

  // The device and the kernels in use, for people and for fingerprints:
  // "cpu avx512bf16, 2 threads".
  virtual std::string Describe() const = 0;

  // Whether products of bfloat16 weights are fast here: what --weights=auto
  // asks.
  virtual bool HasFastBFloat16() const = 0;

  // Takes the scratch memory for `workload`. RESOURCE_EXHAUSTED if there is
  // not that much. Call once, before the first step.
  virtual absl::Status Reserve(const Workload& workload) = 0;

  // RESOURCE_EXHAUSTED if there is not that much memory.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) = 0;

  // Copies from the host, from the device, to the host; sets to zero.
  virtual void Upload(std::byte* to, const void* from, size_t bytes) = 0;
  virtual void Copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void Download(void* to, const std::byte* from, size_t bytes) = 0;
  virtual void Zero(std::byte* data, size_t bytes) = 0;

  // Packs a weight matrix. INVALID_ARGUMENT if a weight is not a finite number,
  // or if it is to be int8 and has more than kMaxInt8Inputs columns.
  virtual absl::StatusOr<std::unique_ptr<Dense>> MakeDense(
      const DenseSource& source) = 0;

  // Begins a step over `rows`; the operations until EndStep() are about them.
  virtual void BeginStep(const StepRows& rows) = 0;

  // Waits for the step. faults[b] becomes 1 where row b met a number that is
  // not finite. Returns the first device failure since the backend was made;
  // after one, the backend is of no further use.
  virtual absl::Status EndStep(std::span<uint8_t> faults) = 0;

  // What the operations since BeginStep() moved of weights and state, in bytes:
  // every weight matrix once; of each run U and the keys and values that it
  // read, once (the sum, where a row makes U for itself), and what it appended;
  // each fold's positions, and its sum once. A step's time is measured against
  // it.
  virtual int64_t StepBytes() const = 0;

  // x[b] = table[token] * scale + what the position adds.   x: [B, D]
  virtual void Embed(const Embedding& embedding, MatrixView<float> x) = 0;

  // y = norm(x), format step 2.1.   x, y: [B or fewer, D]
  virtual void Normalize(const Norm& norm, MatrixView<const float> x,
                         MatrixView<float> y) = 0;

  // The first ceil(D/2) columns of each row become those of the slot's token
  // before it (zeros for its first), and the slot keeps its own in the row of
  // its position.   y: [B, D]
  virtual void ShiftTokens(const LayerState& state, MatrixView<float> y) = 0;

  // cos and sin of position * frequency[k], in double, rounded to float32.
  //   cos, sin: [B, Padded(size / 2)]
  virtual void RotaryAngles(const Rotary& rotary, MatrixView<float> cos,
                            MatrixView<float> sin) = 0;

  // y = activation(W x + bias).   x: [n, inputs]; y: [n, outputs]
  virtual void Project(const Dense& dense, MatrixView<const float> x,
                       Activation activation, MatrixView<float> y) = 0;

  // y += W x + bias.
  virtual void ProjectAndAdd(const Dense& dense, MatrixView<const float> x,
                             MatrixView<float> y) = 0;

  // Heads of z, rotated; quad_k, lin_k and v go to the open chunk of each row's
  // slot, at the row's offset.   cos, sin: from RotaryAngles()
  virtual void AppendHeads(const Attention& attention, const LayerState& state,
                           MatrixView<const float> cos,
                           MatrixView<const float> sin,
                           const HeadRows& heads) = 0;

  // gated[b] = u[b] * (sum over j <= i of w_ij v_j + lambda lin_q[b] U), with
  //   w_ij = weight_scale phi(score_scale quad_q[b] . quad_k_j + bias[i - j]).
  // put_off: closing folds of at most kMaxPutOff positions that are not made
  // yet, of slots that have a single row; U is what each would make it.
  //   gated: [B, Padded(E)]
  virtual void Attend(const Attention& attention, const LayerState& state,
                      const HeadRows& heads, std::span<const Fold> put_off,
                      MatrixView<float> gated) = 0;

  // sum += lin_k_j^T v_j for the positions j of each fold, in ascending order
  // with one fused multiply-add each, so that how they are divided into folds
  // changes no bit; then U = sum where the chunk closes, also by an empty fold.
  // May stand between two steps, in one without rows.
  virtual void FoldChunks(const Attention& attention, const LayerState& state,
                          std::span<const Fold> folds) = 0;

  // Marks the rows of x that have a number that is not finite.   x: [B, D]
  virtual void FindFaults(MatrixView<const float> x) = 0;

  // y[n] = x[rows[n]].
  virtual void GatherRows(std::span<const int32_t> rows,
                          MatrixView<const float> x, MatrixView<float> y) = 0;

  // The same numbers where the host can read them, until the next BeginStep().
  // The first device failure, as EndStep(): then they are not there.
  virtual absl::StatusOr<MatrixView<const float>> OnHost(
      MatrixView<const float> x) = 0;
};

}  // namespace flash

#endif  // KERNELS_BACKEND_H_
