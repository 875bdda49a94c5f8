#include "tests/cuda_emulator/stream.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "tests/cuda_emulator/memory.h"

namespace cuda_emulator {

cudaStream_t DefaultStream() {
  static CUstream_st& stream = *new CUstream_st;
  return &stream;
}

std::vector<cudaStream_t>& Streams() {
  static auto& streams = *new std::vector<cudaStream_t>{DefaultStream()};
  return streams;
}

void Put(cudaStream_t stream, CudaWork work) {
  if (stream->captured != nullptr) {
    stream->captured->work.push_back(std::move(work));
    return;
  }
  stream->waiting.push_back(std::move(work));
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking != nullptr && std::string_view(blocking) == "1") Drain(stream);
}

void Drain(cudaStream_t stream) {
  if (stream->waiting.empty()) return;
  const DeviceMemoryOpen open;
  while (!stream->waiting.empty()) {
    const CudaWork work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    work();
  }
}

void DrainAll() {
  for (const cudaStream_t stream : Streams()) Drain(stream);
}

}  // namespace cuda_emulator
