#include "server/command_line/standard_output.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace flash {

absl::Status WriteOut(std::string_view text, std::FILE* out) {
  errno = 0;
  // Both, always: what was written may lie in the buffer, and fail later.
  const bool written =
      std::fwrite(text.data(), 1, text.size(), out) == text.size();
  if (std::fflush(out) == 0 && written) return absl::OkStatus();
  if (errno == EPIPE) {
    return absl::UnavailableError("stdout is closed: its reader has left");
  }
  return absl::UnavailableError(
      absl::StrCat("cannot write to stdout: ", std::strerror(errno)));
}

}  // namespace flash
