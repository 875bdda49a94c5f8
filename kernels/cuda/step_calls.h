// The calls of one step, put off until the step ends. Most steps call the same
// as one not long ago, with other numbers in the same memory: from the second
// time on such a step is a CUDA graph, which costs one launch.

#ifndef KERNELS_CUDA_STEP_CALLS_H_
#define KERNELS_CUDA_STEP_CALLS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_handles.h"

namespace flash::cuda {

// One call.
class Call {
 public:
  virtual ~Call() = default;
  virtual bool Equals(const Call& other) const = 0;
  // Puts its work into the stream.
  virtual absl::Status Run(cudaStream_t stream) const = 0;
};

// function(args..., stream), which returns a cudaError_t or a cublasStatus_t.
template <typename Function, typename... Args>
class FunctionCall final : public Call {
 public:
  FunctionCall(std::string_view operation, Function function,
               const Args&... args)
      : operation_(operation), function_(function), args_(args...) {}

  bool Equals(const Call& other) const override {
    if (typeid(other) != typeid(*this)) return false;
    const auto& call = static_cast<const FunctionCall&>(other);
    return call.function_ == function_ && call.args_ == args_;
  }
  absl::Status Run(cudaStream_t stream) const override {
    const auto error = std::apply(
        [&](const Args&... args) { return function_(args..., stream); }, args_);
    if (error == decltype(error){}) return absl::OkStatus();
    return DeviceError(operation_, error);
  }

 private:
  const std::string_view operation_;  // a literal
  const Function function_;
  const std::tuple<Args...> args_;
};

// Calls in their order.
class CallList {
 public:
  // operation: a literal, for errors. Arguments are copied.
  template <typename Function, typename... Args>
  void Add(std::string_view operation, Function function, const Args&... args) {
    calls_.push_back(std::make_unique<FunctionCall<Function, Args...>>(
        operation, function, args...));
  }
  bool empty() const { return calls_.empty(); }

  bool operator==(const CallList& other) const;

  // Puts their work into the stream; stops at the first failure.
  absl::Status Run(cudaStream_t stream) const;

 private:
  std::vector<std::unique_ptr<Call>> calls_;
};

// Graphs of the lists of calls that came last.
//
// Thread safety: one thread at a time.
class StepGraphs {
 public:
  // Puts the work of `calls` into the stream.
  absl::Status Run(CallList calls, cudaStream_t stream);

 private:
  struct Known {
    CallList calls;
    GraphExec graph;  // null before the second time
    int64_t used = 0;
  };

  // A step of each number of rows, and some that are like no other.
  static constexpr size_t kMaxKnown = 128;

  Known* Find(const CallList& calls);
  void Remember(CallList calls);
  static absl::StatusOr<GraphExec> Capture(const CallList& calls,
                                           cudaStream_t stream);

  std::vector<Known> known_;
  int64_t runs_ = 0;
};

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_STEP_CALLS_H_
