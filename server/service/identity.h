// Who calls: sessions, requests' ids and cached prefixes belong to an owner,
// and nobody sees another's.

#ifndef SERVER_SERVICE_IDENTITY_H_
#define SERVER_SERVICE_IDENTITY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace grpc {
class ServerContextBase;
}  // namespace grpc

namespace flash {

// Thread safety: every function may be called from any thread. They are called
// on gRPC's threads, and do not wait.
class Identity {
 public:
  virtual ~Identity() = default;

  // The owner on whose behalf the call of `context` comes. UNAUTHENTICATED,
  // with details, if that cannot be told.
  virtual absl::StatusOr<std::string> OwnerOf(
      const grpc::ServerContextBase& context) const = 0;
};

// Everybody is one owner, "".
std::unique_ptr<Identity> MakeOneOwner();

// The owner is the value of the metadata `key`, 1 to 128 printable ASCII bytes,
// which has to be there exactly once. Whoever reaches the server can be anyone
// by it: it is for use behind a proxy that knows its clients, and sets it or
// takes it away.
std::unique_ptr<Identity> MakeOwnerOfMetadata(std::string key);

}  // namespace flash

#endif  // SERVER_SERVICE_IDENTITY_H_
