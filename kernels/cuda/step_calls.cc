#include "kernels/cuda/step_calls.h"

#include <algorithm>
#include <utility>

namespace flash::cuda {

bool CallList::operator==(const CallList& other) const {
  return std::equal(calls_.begin(), calls_.end(), other.calls_.begin(),
                    other.calls_.end(),
                    [](const auto& a, const auto& b) { return a->Equals(*b); });
}

absl::Status CallList::Run(cudaStream_t stream) const {
  for (const std::unique_ptr<Call>& call : calls_) {
    const absl::Status status = call->Run(stream);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status StepGraphs::Run(CallList calls, cudaStream_t stream) {
  ++runs_;
  Known* known = Find(calls);
  if (known == nullptr) {
    const absl::Status status = calls.Run(stream);
    Remember(std::move(calls));
    return status;
  }
  known->used = runs_;
  if (known->graph == nullptr) {
    absl::StatusOr<GraphExec> graph = Capture(known->calls, stream);
    if (!graph.ok()) return graph.status();
    known->graph = *std::move(graph);
  }
  const cudaError_t error = cudaGraphLaunch(known->graph.get(), stream);
  return error == cudaSuccess ? absl::OkStatus()
                              : DeviceError("the start of a graph", error);
}

StepGraphs::Known* StepGraphs::Find(const CallList& calls) {
  const auto found =
      std::find_if(known_.begin(), known_.end(),
                   [&](const Known& known) { return known.calls == calls; });
  return found == known_.end() ? nullptr : &*found;
}

// In the place of the one that was not used for the longest time.
void StepGraphs::Remember(CallList calls) {
  if (known_.size() == kMaxKnown) {
    known_.erase(std::min_element(
        known_.begin(), known_.end(),
        [](const Known& a, const Known& b) { return a.used < b.used; }));
  }
  known_.push_back({.calls = std::move(calls), .graph = {}, .used = runs_});
}

absl::StatusOr<GraphExec> StepGraphs::Capture(const CallList& calls,
                                              cudaStream_t stream) {
  cudaError_t error =
      cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return DeviceError("a capture", error);
  const absl::Status status = calls.Run(stream);
  cudaGraph_t captured = nullptr;
  error = cudaStreamEndCapture(stream, &captured);
  const Graph graph(captured);
  if (!status.ok()) return status;
  if (error != cudaSuccess) return DeviceError("a capture", error);
  cudaGraphExec_t started = nullptr;
  error = cudaGraphInstantiate(&started, captured, 0);
  if (error != cudaSuccess) return DeviceError("making a graph", error);
  return GraphExec(started);
}

}  // namespace flash::cuda
