#include "server/service/random_ids.h"

#include <random>

#include "absl/strings/str_format.h"

namespace flash {

uint64_t RandomSeed() {
  thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

std::string RandomRequestId() {
  return absl::StrFormat("req-%016x", RandomSeed());
}

}  // namespace flash
