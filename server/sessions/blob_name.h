// The names of blobs, which become file names and keys: what they may be.

#ifndef SERVER_SESSIONS_BLOB_NAME_H_
#define SERVER_SESSIONS_BLOB_NAME_H_

#include <string_view>

#include "absl/status/status.h"

namespace flash {

// INVALID_ARGUMENT unless `name` is as BlobStore says.
absl::Status CheckBlobName(std::string_view name);

// The same of what stands before '/'.
absl::Status CheckFolderName(std::string_view folder);

}  // namespace flash

#endif  // SERVER_SESSIONS_BLOB_NAME_H_
