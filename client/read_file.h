// The whole of a file, for flags that name one.

#ifndef CLIENT_READ_FILE_H_
#define CLIENT_READ_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace flash {

// The bytes of the file that --`flag` names, or of the standard input if `path`
// is "-". FAILED_PRECONDITION, with one sentence, if they cannot be read, as
// those of a folder.
absl::StatusOr<std::string> ReadFile(const std::string& flag,
                                     const std::string& path);

}  // namespace flash

#endif  // CLIENT_READ_FILE_H_
