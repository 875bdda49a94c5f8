// The runtime's functions, in the order of cuda_runtime.h.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "tests/cuda_emulator/grid.h"
#include "tests/cuda_emulator/machine.h"
#include "tests/cuda_emulator/memory.h"
#include "tests/cuda_emulator/stream.h"

using cuda_emulator::Call;
using cuda_emulator::CurrentDevice;
using cuda_emulator::MemoryKind;
using cuda_emulator::TheMachine;

namespace {

cudaStream_t Resolve(cudaStream_t stream) {
  return stream == nullptr ? cuda_emulator::DefaultStream() : stream;
}

bool IsCapturing() {
  for (const cudaStream_t stream : cuda_emulator::Streams()) {
    if (stream->captured != nullptr) return true;
  }
  return false;
}

// What a call returns that waits: a kernel that fails does so here.
cudaError_t AfterWaiting(const Call& call) {
  return call.Return(cuda_emulator::Sticky());
}

cudaError_t Allocate(MemoryKind kind, void** address, size_t bytes) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (TheMachine().num_devices == 0) {
    return call.Return(TheMachine().no_device_error);
  }
  *address = cuda_emulator::AllocateMemory(kind, bytes, CurrentDevice(),
                                           TheMachine().device_bytes);
  return *address != nullptr ? cudaSuccess
                             : call.Return(cudaErrorMemoryAllocation);
}

// Whether a copy or fill of `bytes` may touch the address: memory of a card
// only where it is allocated. `on_card`: it has to be a card's.
bool MayTouch(const void* address, size_t bytes, bool on_card) {
  const MemoryKind kind = cuda_emulator::KindOf(address);
  if (kind == MemoryKind::kDevice || kind == MemoryKind::kManaged) {
    return cuda_emulator::IsAllocated(address, bytes);
  }
  return !on_card;
}

bool IsValidCopy(const void* to, const void* from, size_t bytes,
                 cudaMemcpyKind kind) {
  const bool from_card =
      kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_card =
      kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault) {
    const auto is_device_memory = [](const void* address) {
      return cuda_emulator::KindOf(address) == MemoryKind::kDevice;
    };
    if (is_device_memory(to) && !to_card) return false;
    if (is_device_memory(from) && !from_card) return false;
  }
  return MayTouch(to, bytes, to_card) && MayTouch(from, bytes, from_card);
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  *count = TheMachine().num_devices;
  return *count > 0 ? cudaSuccess : call.Return(TheMachine().no_device_error);
}

cudaError_t cudaGetDevice(int* device) {
  const Call call;
  *device = CurrentDevice();
  return call.error();
}

cudaError_t cudaSetDevice(int device) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (TheMachine().num_devices == 0) {
    return call.Return(TheMachine().no_device_error);
  }
  if (device < 0 || device >= TheMachine().num_devices) {
    return call.Return(cudaErrorInvalidDevice);
  }
  CurrentDevice() = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (device < 0 || device >= TheMachine().num_devices) {
    return call.Return(cudaErrorInvalidDevice);
  }
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "emulated card %d",
                device);
  properties->totalGlobalMem = TheMachine().device_bytes;
  properties->major = 9;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (TheMachine().num_devices == 0) {
    return call.Return(TheMachine().no_device_error);
  }
  *total = TheMachine().device_bytes;
  *free = *total -
          std::min(*total, cuda_emulator::AllocatedBytesOf(CurrentDevice()));
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (IsCapturing()) return call.Return(cudaErrorStreamCaptureUnsupported);
  cuda_emulator::DrainAll();
  return AfterWaiting(call);
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    default:
      return "an error that the emulator has no words for";
  }
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cuda_emulator::LastError();
  cuda_emulator::LastError() = cuda_emulator::Sticky();
  return error;
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return Allocate(MemoryKind::kDevice, address, bytes);
}
cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned) {
  return Allocate(MemoryKind::kManaged, address, bytes);
}
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  return Allocate(MemoryKind::kPinned, address, bytes);
}

cudaError_t cudaFree(void* address) {
  const Call call;
  if (address != nullptr) {
    // Also after an error: nothing that frees looks at what this returns.
    cuda_emulator::DrainAll();
    if (!cuda_emulator::FreeMemory(address)) {
      return call.Return(cudaErrorInvalidValue);
    }
  }
  return call.error();
}
cudaError_t cudaFreeHost(void* address) { return cudaFree(address); }

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind) {
  cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  if (error != cudaSuccess) return error;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (bytes == 0) return cudaSuccess;
  if (!IsValidCopy(to, from, bytes, kind)) {
    return call.Return(cudaErrorInvalidValue);
  }
  stream = Resolve(stream);
  const auto copy = [to, from, bytes] { std::memmove(to, from, bytes); };
  if (stream->captured != nullptr) {
    cuda_emulator::Put(stream, copy);
  } else if (cuda_emulator::KindOf(from) == MemoryKind::kPageable) {
    // Such memory has been read when the call returns, but maybe not written.
    const auto* begin = static_cast<const std::byte*>(from);
    cuda_emulator::Put(
        stream, [to, staged = std::vector<std::byte>(begin, begin + bytes)] {
          std::memcpy(to, staged.data(), staged.size());
        });
  } else {
    cuda_emulator::Put(stream, copy);
    if (cuda_emulator::KindOf(to) == MemoryKind::kPageable) {
      cuda_emulator::Drain(stream);
      return AfterWaiting(call);
    }
  }
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (bytes == 0) return cudaSuccess;
  if (!MayTouch(to, bytes, true)) return call.Return(cudaErrorInvalidValue);
  cuda_emulator::Put(Resolve(stream),
                     [to, value, bytes] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  *stream = new CUstream_st;
  cuda_emulator::Streams().push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Call call;
  if (stream == nullptr) return call.Return(cudaErrorInvalidResourceHandle);
  cuda_emulator::Drain(stream);
  std::erase(cuda_emulator::Streams(), stream);
  delete stream;
  return call.error();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (IsCapturing()) return call.Return(cudaErrorStreamCaptureUnsupported);
  cuda_emulator::Drain(Resolve(stream));
  return AfterWaiting(call);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  return Resolve(stream)->waiting.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (stream == nullptr || stream->captured != nullptr) {
    return call.Return(cudaErrorStreamCaptureUnsupported);
  }
  stream->captured = std::make_unique<CUgraph_st>();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Call call;
  *graph = nullptr;
  if (stream == nullptr || stream->captured == nullptr) {
    return call.Return(cudaErrorInvalidValue);
  }
  const std::unique_ptr<CUgraph_st> captured = std::move(stream->captured);
  if (call.error() != cudaSuccess) return call.error();
  *graph = new CUgraph_st(*captured);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph,
                                 unsigned long long) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  *instance = new CUgraphExec_st{
      std::make_shared<const std::vector<CudaWork>>(graph->work)};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  cuda_emulator::Put(Resolve(stream), [work = instance->work] {
    for (const CudaWork& each : *work) each();
  });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Call call;
  delete graph;
  return call.error();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
  const Call call;
  delete instance;
  return call.error();
}

namespace cuda_emulator {
namespace {

void RunGrid(dim3 grid, dim3 block, const KernelCall& kernel) {
  static Grid& runner = *new Grid;
  static uint64_t launches = 0;
  if (Sticky() != cudaSuccess) return;
  const Machine& machine = TheMachine();
  runner.Run(grid, block, kernel, machine.order, machine.seed + launches++);
}

}  // namespace

cudaError_t LaunchGrid(const cudaLaunchConfig_t& config,
                       const KernelCall& kernel) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  const dim3 grid = config.gridDim;
  const dim3 block = config.blockDim;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  constexpr unsigned kMaxOtherBlocks = 65535;  // in y and z
  if (threads == 0 || threads > kMaxBlockThreads || block.z > 64 ||
      grid.x == 0 || grid.x > INT32_MAX || grid.y == 0 ||
      grid.y > kMaxOtherBlocks || grid.z == 0 || grid.z > kMaxOtherBlocks ||
      config.dynamicSmemBytes != 0 || kernel.bytes > kMaxParameterBytes) {
    return call.Return(cudaErrorInvalidConfiguration);
  }
  const auto* begin = static_cast<const std::byte*>(kernel.parameters);
  Put(Resolve(config.stream),
      [grid, block, call = kernel.call,
       copy = std::vector<std::byte>(begin, begin + kernel.bytes)] {
        RunGrid(grid, block, {call, copy.data(), copy.size()});
      });
  return cudaSuccess;
}

}  // namespace cuda_emulator
