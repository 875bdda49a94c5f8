// The errors that every blob store has, in the same words.

#ifndef SERVER_SESSIONS_STORE_ERRORS_H_
#define SERVER_SESSIONS_STORE_ERRORS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace flash {

inline absl::Status NoSuchBlob(std::string_view name) {
  return absl::NotFoundError(absl::StrCat("there is no ", std::string(name)));
}

// `from` of List() is not the end of a page.
inline absl::Status NoSuchPage(std::string_view from) {
  return absl::InvalidArgumentError(
      absl::StrCat("no page begins at \"",
                   absl::CHexEscape(std::string(from.substr(0, 256))), "\""));
}

// `found`: 0 if there is none.
inline absl::Status OtherVersion(std::string_view name, int64_t expected,
                                 int64_t found) {
  return absl::AbortedError(
      absl::StrCat(std::string(name), " was changed meanwhile: its version is ",
                   found, ", not ", expected));
}

inline absl::Status StoreIsFull(const std::string& store, int64_t max_bytes,
                                int64_t bytes, int64_t added_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat(store, " is full: it holds ", bytes, " of at most ",
                   max_bytes, " bytes, and ", added_bytes, " more do not fit"));
}

}  // namespace flash

#endif  // SERVER_SESSIONS_STORE_ERRORS_H_
