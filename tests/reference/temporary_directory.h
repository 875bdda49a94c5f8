// A directory for one test, gone with the object.

#ifndef TESTS_REFERENCE_TEMPORARY_DIRECTORY_H_
#define TESTS_REFERENCE_TEMPORARY_DIRECTORY_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "kernels/check.h"

namespace flash {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    path_ = (std::filesystem::temp_directory_path() / "flash_XXXXXX").string();
    FLASH_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;  // what is left is in the system's /tmp
    std::filesystem::remove_all(path_, ignored);
  }

  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

  // Writes a file of that name in the directory, in place of an older one.
  void Write(const std::string& name, std::string_view contents) const {
    std::ofstream file(path_ + "/" + name, std::ios::binary);
    file << contents;
    FLASH_CHECK(file.flush().good());
  }

 private:
  std::string path_;
};

}  // namespace flash

#endif  // TESTS_REFERENCE_TEMPORARY_DIRECTORY_H_
