#include "server/device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/machine.h"

namespace flash {
namespace {

// "avx512bf16" of "cpu avx512bf16, 2 threads".
std::string InstructionSetOf(const Backend& backend) {
  const std::string description = backend.Describe();
  const size_t begin = description.find(' ') + 1;
  return description.substr(begin, description.find(',') - begin);
}

std::unique_ptr<ThreadPool> MakeThreads(const ServerConfig& config) {
  return std::make_unique<ThreadPool>(
      config.threads.value_or(UsableProcessors()));
}

absl::StatusOr<Device> MakeProcessor(const ServerConfig& config) {
  Device device;
  device.threads = MakeThreads(config);
  auto backend = MakeCpuBackend(*device.threads, config.cpu_isa);
  if (!backend.ok()) return backend.status();
  device.backend = *std::move(backend);
  device.kind = "cpu";
  device.name = ProcessorName();
  device.kernels = InstructionSetOf(*device.backend);
  device.numerics = absl::StrCat("cpu/", device.kernels);
  return device;
}

// 0 once the card is gone: then there is nothing to be had of it.
int64_t FreeBytesOf(int card) {
  const auto found = FindCudaDevice(card);
  return found.ok() ? found->free_bytes : 0;
}

absl::StatusOr<CudaDevice> ChooseCard() {
  const auto cards = CudaDevices();
  if (!cards.ok()) return cards.status();
  return CardWithMostFreeMemory(*cards);
}

absl::StatusOr<Device> MakeCard(const ServerConfig& config) {
  const auto card =
      config.card.has_value() ? FindCudaDevice(*config.card) : ChooseCard();
  if (!card.ok()) return card.status();
  auto backend = MakeCudaBackend({.device = card->index});
  if (!backend.ok()) return backend.status();
  Device device;
  device.threads = MakeThreads(config);
  device.backend = *std::move(backend);
  device.kind = "cuda";
  device.name = card->name;
  device.kernels =
      absl::StrCat("sm_", card->compute_major, card->compute_minor);
  // All that it says: the card, its architecture, the library's version.
  device.numerics =
      absl::StrReplaceAll(device.backend->Describe(), {{", ", "/"}});
  device.free_card_bytes = [index = card->index] { return FreeBytesOf(index); };
  return device;
}

}  // namespace

CudaDevice CardWithMostFreeMemory(const std::vector<CudaDevice>& cards) {
  return *std::max_element(cards.begin(), cards.end(),
                           [](const CudaDevice& a, const CudaDevice& b) {
                             return a.free_bytes < b.free_bytes;
                           });
}

absl::StatusOr<Device> MakeDevice(const ServerConfig& config) {
  if (config.device == ServerConfig::Device::kCpu) return MakeProcessor(config);
  auto card = MakeCard(config);
  if (card.ok()) return card;
  const std::string why(card.status().message());
  if (config.device == ServerConfig::Device::kCuda) {
    const std::string number =
        config.card.has_value() ? absl::StrCat(":", *config.card) : "";
    return absl::Status(
        card.status().code(),
        absl::StrCat("--device is \"cuda", number, "\": ", why));
  }
  auto processor = MakeProcessor(config);
  if (processor.ok()) processor->why_no_card = why;
  return processor;
}

}  // namespace flash
