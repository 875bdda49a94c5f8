// Any text must be a config.json that can be used, or be refused.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/check.h"
#include "server/model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = flash::ParseModelConfig(
      {reinterpret_cast<const char*>(data), size}, "config.json");
  if (!config.ok()) {
    FLASH_CHECK(absl::IsInvalidArgument(config.status()));
    FLASH_CHECK(!config.status().message().empty());
    return 0;
  }
  FLASH_CHECK(config->num_heads() > 0);
  FLASH_CHECK(config->vocab_size * config->hidden_size > 0);
  return 0;
}
