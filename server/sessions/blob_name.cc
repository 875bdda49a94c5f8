#include "server/sessions/blob_name.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace flash {
namespace {

constexpr size_t kMaxPartLength = 128;

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
         c == '_' || c == '-';
}

bool IsPart(std::string_view part) {
  return !part.empty() && part.size() <= kMaxPartLength && part[0] != '.' &&
         std::all_of(part.begin(), part.end(), IsNameCharacter);
}

absl::Status Refused(std::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "no name for a blob: \"",
      absl::CHexEscape(std::string(name.substr(0, 2 * kMaxPartLength))), "\""));
}

}  // namespace

absl::Status CheckBlobName(std::string_view name) {
  const size_t slash = name.find('/');
  const bool has_folder = slash != std::string_view::npos;
  if (has_folder && !IsPart(name.substr(0, slash))) return Refused(name);
  if (!IsPart(has_folder ? name.substr(slash + 1) : name)) return Refused(name);
  return absl::OkStatus();
}

absl::Status CheckFolderName(std::string_view folder) {
  return IsPart(folder) ? absl::OkStatus() : Refused(folder);
}

}  // namespace flash
