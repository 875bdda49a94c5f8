#include "client/open_line.h"

#include <sys/stat.h>

namespace flash {
namespace {

bool ShowInOnePlace(std::FILE* a, std::FILE* b) {
  struct stat of_a = {};
  struct stat of_b = {};
  return fstat(fileno(a), &of_a) == 0 && fstat(fileno(b), &of_b) == 0 &&
         of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

}  // namespace

void OpenLine::End() {
  if (!is_open_ || !ShowInOnePlace(out_, err_)) return;
  std::fputc('\n', err_);
  is_open_ = false;
}

}  // namespace flash
