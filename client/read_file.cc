#include "client/read_file.h"

#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"

namespace flash {

absl::StatusOr<std::string> ReadFile(const std::string& flag,
                                     const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& in = path == "-" ? std::cin : file;
  // Not by iterators: they let out what reading a folder throws.
  std::string text;
  char part[16 << 10];
  while (in.read(part, sizeof(part)), in.gcount() > 0) {
    text.append(part, in.gcount());
  }
  if ((path != "-" && !file.is_open()) || in.bad()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--", flag, " is \"", path, "\", which cannot be read"));
  }
  return text;
}

}  // namespace flash
