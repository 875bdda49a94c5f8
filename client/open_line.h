// Where a text that streams to stdout stands, so that what is said on stderr in
// the middle of it has a line of its own.

#ifndef CLIENT_OPEN_LINE_H_
#define CLIENT_OPEN_LINE_H_

#include <cstdio>
#include <string_view>

namespace flash {

class OpenLine {
 public:
  explicit OpenLine(std::FILE* out = stdout, std::FILE* err = stderr)
      : out_(out), err_(err) {}

  // `text` was written to stdout.
  void Wrote(std::string_view text) {
    if (!text.empty()) is_open_ = text.back() != '\n';
  }

  // Ends the line, if it is open and stderr shows in the same place: the same
  // terminal, or by 2>&1 the same file or pipe. Elsewhere the text stays as it
  // is.
  void End();

 private:
  std::FILE* const out_;
  std::FILE* const err_;
  bool is_open_ = false;
};

}  // namespace flash

#endif  // CLIENT_OPEN_LINE_H_
