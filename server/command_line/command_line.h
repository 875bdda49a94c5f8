// How every program reads its settings: Abseil flags, set by the environment
// and by the command line.
//
// A flag --NAME has the environment twin FLASH_NAME; the command line wins.
// --flagfile=PATH reads flags from a file, one a line, where it stands among
// the arguments; empty lines and lines that begin with # are passed over.
//
// (absl::ParseCommandLine() is not used because it ends the process itself,
// with exit codes that are not ours, and knows no environment.)

#ifndef SERVER_COMMAND_LINE_COMMAND_LINE_H_
#define SERVER_COMMAND_LINE_COMMAND_LINE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace flash {

struct Program {
  std::string name;   // "flash-server"
  std::string usage;  // what stands before the list of flags in --help
  // __FILE__ of the source that defines the program's flags: libraries have
  // flags too, which are not the program's.
  std::string flags_file;
};

struct CommandLine {
  bool wants_help = false;             // --help was there
  std::vector<std::string> arguments;  // what is not a flag, in order
};

// Sets the program's flags. INVALID_ARGUMENT, with one sentence that names the
// flag or the variable, if one is unknown or its value is wrong; some flags are
// then set.
//
// `environment` returns a variable's value or nullptr, as getenv() does.
absl::StatusOr<CommandLine> ReadCommandLine(
    const Program& program, const std::vector<std::string>& arguments,
    const std::function<const char*(const char*)>& environment);

// The usage, then each flag with its default and what it is for.
std::string HelpText(const Program& program);

// What main() does with a command line: sets the flags and returns the
// arguments; ends the process with 0 after printing the help, and with 2 after
// printing what is wrong.
std::vector<std::string> ReadCommandLineOrExit(const Program& program, int argc,
                                               char** argv);

}  // namespace flash

#endif  // SERVER_COMMAND_LINE_COMMAND_LINE_H_
