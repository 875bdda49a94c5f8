// What a server computes on: the processor, or one card. Chosen once, at the
// start; only what is told of it differs afterwards.

#ifndef SERVER_DEVICE_H_
#define SERVER_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/thread_pool.h"
#include "server/server_config.h"

namespace flash {

struct Device {
  std::string kind;      // "cpu" or "cuda"
  std::string name;      // the processor's, or the card's
  std::string kernels;   // those that run, as in "avx512bf16" or "sm_90"
  std::string numerics;  // what of it all the bits depend on: "cpu/avx512bf16"
  // Why --device=auto is the processor: one sentence. Empty where it is not, or
  // was asked for.
  std::string why_no_card;

  // Samples, packs weights and, where there is no card, runs the steps.
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<Backend> backend;  // may borrow `threads`

  // Bytes that are free on the card at the moment. Null: slots are in the
  // host's memory.
  std::function<int64_t()> free_card_bytes;
};

// The device of --device, --threads and --cpu_isa. UNAVAILABLE, in a sentence
// that names the flag, if a card was asked for and is not to be had.
absl::StatusOr<Device> MakeDevice(const ServerConfig& config);

// Of several equal ones the first. REQUIRES: there is one.
CudaDevice CardWithMostFreeMemory(const std::vector<CudaDevice>& cards);

}  // namespace flash

#endif  // SERVER_DEVICE_H_
