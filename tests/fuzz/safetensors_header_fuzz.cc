// Any bytes must be a safetensors file all of whose tensors lie within it, or
// be refused.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/check.h"
#include "server/model/safetensors.h"
#include "server/model/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file =
      std::as_bytes(std::span<const uint8_t>(data, size));
  const auto tensors = flash::ParseSafetensors(file, "model.safetensors");
  if (!tensors.ok()) {
    FLASH_CHECK(absl::IsInvalidArgument(tensors.status()));
    FLASH_CHECK(!tensors.status().message().empty());
    return 0;
  }
  for (const auto& [name, tensor] : *tensors) {
    FLASH_CHECK(tensor.data >= file.data());
    FLASH_CHECK(tensor.data + tensor.num_bytes() <= file.data() + file.size());
    const bool finite = flash::CheckFinite(name, tensor).ok();
    FLASH_CHECK(flash::ToFloat32(tensor).size() > 0 || finite);
  }
  return 0;
}
