// How every program reads its settings: Abseil flags, set by the environment
// and by the command line.
//
// A flag --NAME has the environment twin FLASH_NAME; the command line wins.
// --flagfile=PATH reads flags from a file, one a line, where it stands among
// the arguments; empty lines and lines that begin with # are passed over. The
// file of FLASH_FLAGFILE comes first of all: everything else wins over it.
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

// One of the things that a program does.
struct Command {
  std::string name;  // a word, or two: "session fork"
  std::string help;  // what stands before the list of its flags in --help
};

struct Program {
  std::string name;   // "flash-server"
  std::string usage;  // what stands before the list of flags in --help
  // __FILE__ of the source that defines the program's flags: libraries have
  // flags too, which are not the program's.
  std::string flags_file;
  // If not empty: the program's arguments are one of these. A flag whose help
  // begins with some of them, as in "generate, score: ...", is for them alone;
  // said on the command line for another, it is wrong. (The environment and
  // flag files may hold flags for all commands.) There "session" stands for all
  // commands whose first word it is.
  std::vector<Command> commands = {};
};

struct CommandLine {
  bool wants_help = false;             // --help was there
  bool wants_version = false;          // --version was there
  std::vector<std::string> arguments;  // what is not a flag, in order
};

// Sets the program's flags. INVALID_ARGUMENT, with one sentence that names the
// flag, the variable or the argument, if one is unknown or its value is wrong,
// or if a command is missing or has flags of another; some flags are then set.
//
// `environment` returns a variable's value or nullptr, as getenv() does.
absl::StatusOr<CommandLine> ReadCommandLine(
    const Program& program, const std::vector<std::string>& arguments,
    const std::function<const char*(const char*)>& environment);

// The usage, then each flag with its default and what it is for. With
// `arguments` that are a command, or the first of the words of some: the help
// of these, and the flags that they take.
std::string HelpText(const Program& program,
                     const std::vector<std::string>& arguments = {});

// Of the `names` of environment variables those that begin with FLASH_ and are
// no flag's twin: misspelt ones, as a rule. (For a program that has its
// environment to itself: in one shell there are twins of several programs.)
//
// Kubernetes puts a few variables for each Service into every container, and
// for one whose name begins with "flash" these begin with FLASH_ too:
// FLASH_SERVER_SERVICE_HOST and others that begin as it does. They are not
// told.
std::vector<std::string> UnknownVariables(
    const Program& program, const std::vector<std::string>& names);

// What main() does with a command line: sets the flags and returns the
// arguments; ends the process with 0 after printing the help or the version,
// with 1 if it cannot be printed, and with 2 after printing what is wrong.
std::vector<std::string> ReadCommandLineOrExit(const Program& program, int argc,
                                               char** argv);

}  // namespace flash

#endif  // SERVER_COMMAND_LINE_COMMAND_LINE_H_
