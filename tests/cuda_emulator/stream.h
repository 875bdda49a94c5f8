// Work that is put into streams, and done when somebody waits for it.

#ifndef TESTS_CUDA_EMULATOR_STREAM_H_
#define TESTS_CUDA_EMULATOR_STREAM_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

using CudaWork = std::function<void()>;

struct CUgraph_st {
  std::vector<CudaWork> work;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<CudaWork>> work;
};

struct CUstream_st {
  std::deque<CudaWork> waiting;
  // What is captured rather than done, if anything is.
  std::unique_ptr<CUgraph_st> captured;
};

namespace cuda_emulator {

// The stream that null stands for.
cudaStream_t DefaultStream();
// Every stream that lives.
std::vector<cudaStream_t>& Streams();

// Puts work into the stream, or does it at once where launches block.
void Put(cudaStream_t stream, CudaWork work);
// Does what the stream has, all of it or the first `works` that there ever
// were.
void Drain(cudaStream_t stream);
void DrainUntil(cudaStream_t stream, int64_t works);
void DrainAll();

}  // namespace cuda_emulator

#endif  // TESTS_CUDA_EMULATOR_STREAM_H_
