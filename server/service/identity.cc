#include "server/service/identity.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/service/errors.h"

namespace flash {
namespace {

constexpr size_t kMaxOwnerBytes = 128;

class OneOwner final : public Identity {
 public:
  absl::StatusOr<std::string> OwnerOf(
      const grpc::ServerContextBase&) const override {
    return std::string();
  }
};

class OwnerOfMetadata final : public Identity {
 public:
  explicit OwnerOfMetadata(std::string key) : key_(std::move(key)) {}

  absl::StatusOr<std::string> OwnerOf(
      const grpc::ServerContextBase& context) const override {
    const auto [first, last] = context.client_metadata().equal_range(key_);
    // A proxy that adds to what the client sent, rather than replace it, would
    // let the client choose.
    const auto count = std::distance(first, last);
    if (count != 1) {
      return NoTenant(absl::StrCat("the metadata \"", key_, "\" is there ",
                                   count, " times; it must be there once"));
    }
    std::string owner(first->second.data(), first->second.size());
    const bool printable = std::all_of(owner.begin(), owner.end(), [](char c) {
      return c >= 0x20 && c < 0x7f;
    });
    if (owner.empty() || owner.size() > kMaxOwnerBytes || !printable) {
      return NoTenant(absl::StrCat("the metadata \"", key_, "\" has ",
                                   owner.size(), " bytes; it must have 1 to ",
                                   kMaxOwnerBytes, " printable ASCII bytes"));
    }
    return owner;
  }

 private:
  const std::string key_;
};

}  // namespace

std::unique_ptr<Identity> MakeOneOwner() {
  return std::make_unique<OneOwner>();
}

std::unique_ptr<Identity> MakeOwnerOfMetadata(std::string key) {
  return std::make_unique<OwnerOfMetadata>(std::move(key));
}

}  // namespace flash
