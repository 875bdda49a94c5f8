#include "server/command_line/command_line.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "server/command_line/standard_output.h"
#include "server/command_line/version.h"

namespace flash {
namespace {

using FlagMap = std::map<std::string, absl::CommandLineFlag*>;

FlagMap FlagsOf(const Program& program) {
  // Abseil tells file names without the slashes they begin with.
  const size_t begin = program.flags_file.find_first_not_of('/');
  const std::string file = program.flags_file.substr(begin);
  FlagMap flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (flag->Filename() == file) {
      flags[std::string(name)] = flag;
    }
  }
  return flags;
}

std::string VariableOf(const std::string& flag) {
  return absl::StrCat("FLASH_", absl::AsciiStrToUpper(flag));
}

// What the type of a flag takes; empty if Abseil's own message has to do.
std::string Accepted(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<absl::Duration>()) {
    return "a time with its unit, such as 30s or 1m30s";
  }
  if (flag.IsOfType<bool>()) return "true or false";
  if (flag.IsOfType<int32_t>() || flag.IsOfType<int64_t>() ||
      flag.IsOfType<uint32_t>() || flag.IsOfType<uint64_t>()) {
    return "a whole number";
  }
  if (flag.IsOfType<float>() || flag.IsOfType<double>()) return "a number";
  return "";
}

absl::Status Set(absl::CommandLineFlag& flag, const std::string& value,
                 const std::string& source) {
  std::string error;
  if (flag.ParseFrom(value, &error)) return absl::OkStatus();
  const std::string accepted = Accepted(flag);
  if (!accepted.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, " is \"", value, "\"; accepted is ", accepted));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(source, " is \"", value, "\", which is not a value for it",
                   error.empty() ? "" : ": ", error));
}

// Whether `word` is the command, or the first of its two words.
bool Means(const std::string& word, const Command& command) {
  return command.name == word || absl::StartsWith(command.name, word + " ");
}

// Those of the program's commands that `word` means.
std::vector<Command> Meant(const Program& program, const std::string& word) {
  std::vector<Command> commands;
  for (const Command& command : program.commands) {
    if (Means(word, command)) commands.push_back(command);
  }
  return commands;
}

std::string NamesOf(const std::vector<Command>& commands) {
  return absl::StrJoin(commands, ", ",
                       [](std::string* out, const Command& command) {
                         out->append(command.name);
                       });
}

// The words that say which commands a flag is for; none if it is for all.
std::vector<std::string> WordsOf(const Program& program,
                                 const absl::CommandLineFlag& flag) {
  const std::string help = flag.Help();
  const size_t colon = help.find(':');
  if (colon == std::string::npos) return {};
  std::vector<std::string> words =
      absl::StrSplit(help.substr(0, colon), absl::ByString(", "));
  for (const auto& word : words) {
    if (Meant(program, word).empty()) return {};
  }
  return words;
}

bool IsFor(const std::vector<std::string>& words, const Command& command) {
  return words.empty() || std::any_of(words.begin(), words.end(),
                                      [&command](const std::string& word) {
                                        return Means(word, command);
                                      });
}

class Parser {
 public:
  explicit Parser(const Program& program)
      : program_(program), flags_(FlagsOf(program)) {}

  absl::Status ReadEnvironment(
      const std::function<const char*(const char*)>& environment) {
    const char* path = environment("FLASH_FLAGFILE");
    if (path != nullptr) {
      const absl::Status status = ReadFlagFile("FLASH_FLAGFILE", path);
      if (!status.ok()) return status;
    }
    for (const auto& [name, flag] : flags_) {
      const std::string variable = VariableOf(name);
      const char* value = environment(variable.c_str());
      if (value == nullptr) continue;
      const absl::Status status = Set(*flag, value, variable);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ReadArguments(const std::vector<std::string>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      if (argument == "--") {
        line_.arguments.insert(line_.arguments.end(), arguments.begin() + i + 1,
                               arguments.end());
        break;
      }
      if (argument.size() < 2 || argument[0] != '-') {
        line_.arguments.push_back(argument);
        continue;
      }
      // "--name value" takes the next argument too.
      const std::string* next =
          i + 1 < arguments.size() ? &arguments[i + 1] : nullptr;
      bool next_taken = false;
      const absl::Status status = ReadFlag(argument, next, next_taken);
      if (!status.ok()) return status;
      if (next_taken) ++i;
    }
    return absl::OkStatus();
  }

  // Whether the arguments are one command, and the flags are for it.
  absl::Status CheckCommand() const {
    if (program_.commands.empty() || line_.wants_help || line_.wants_version) {
      return absl::OkStatus();
    }
    if (line_.arguments.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("say what to do: one of ", NamesOf(program_.commands),
                       "; see ", program_.name, " --help"));
    }
    // Those that the first word leaves, and of these, those of both words.
    const std::string& first = line_.arguments[0];
    std::vector<Command> commands = Meant(program_, first);
    std::string said = first;
    if (!commands.empty() && commands[0].name != first) {
      const std::vector<Command> of_first = std::move(commands);
      if (line_.arguments.size() == 1) {
        return absl::InvalidArgumentError(absl::StrCat(
            "\"", first, "\" is not all: one of ", NamesOf(of_first)));
      }
      absl::StrAppend(&said, " ", line_.arguments[1]);
      commands = Meant(program_, said);
      if (commands.empty()) return NotACommand(said, of_first);
    }
    if (commands.empty()) return NotACommand(said, program_.commands);
    const Command& command = commands[0];
    const size_t num_words = command.name == first ? 1 : 2;
    if (line_.arguments.size() > num_words) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", line_.arguments[num_words], "\" is not understood: after ",
          command.name, " come flags only"));
    }
    return CheckFlagsOf(command);
  }

  CommandLine line() && { return std::move(line_); }

 private:
  static absl::Status NotACommand(const std::string& said,
                                  const std::vector<Command>& known) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", said, "\" is not a command; it must be one of ", NamesOf(known)));
  }

  absl::Status CheckFlagsOf(const Command& command) const {
    for (const auto& name : on_line_) {
      const auto words = WordsOf(program_, *flags_.at(name));
      if (IsFor(words, command)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "--", name, " is a flag of ", absl::StrJoin(words, " and "),
          ", not of ", command.name));
    }
    return absl::OkStatus();
  }

  absl::Status ReadFlag(const std::string& argument, const std::string* next,
                        bool& next_taken) {
    const size_t begin = argument[1] == '-' ? 2 : 1;
    const size_t equals = argument.find('=', begin);
    const bool has_value = equals != std::string::npos;
    const std::string name = argument.substr(begin, equals - begin);
    std::string value = has_value ? argument.substr(equals + 1) : "";
    if (name == "help" || name == "h") {
      line_.wants_help = true;
      return absl::OkStatus();
    }
    if (name == "version") {
      line_.wants_version = true;
      return absl::OkStatus();
    }
    absl::CommandLineFlag* flag = Find(name);
    if (flag != nullptr && flag->IsOfType<bool>() && !has_value) {
      return SetNamed(*flag, "true", name);
    }
    if (flag == nullptr && absl::StartsWith(name, "no") && !has_value) {
      flag = Find(name.substr(2));
      if (flag != nullptr && flag->IsOfType<bool>()) {
        return SetNamed(*flag, "false", name);
      }
      flag = nullptr;
    }
    if (flag == nullptr && name != "flagfile") return Unknown(name);
    if (!has_value) {
      if (next == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, " needs a value, as in --", name, "=..."));
      }
      value = *next;
      next_taken = true;
    }
    if (flag == nullptr) return ReadFlagFile("--flagfile", value);
    return SetNamed(*flag, value, name);
  }

  // Sets a flag that was said by its name.
  absl::Status SetNamed(absl::CommandLineFlag& flag, const std::string& value,
                        const std::string& name) {
    if (depth_ == 0) on_line_.push_back(std::string(flag.Name()));
    return Set(flag, value, "--" + name);
  }

  absl::Status ReadFlagFile(const std::string& source,
                            const std::string& path) {
    if (++depth_ > 8) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, " is nested too deeply"));
    }
    std::ifstream file(path);
    std::vector<std::string> arguments;
    for (std::string line; std::getline(file, line);) {
      const std::string text(absl::StripAsciiWhitespace(line));
      if (!text.empty() && text[0] != '#') arguments.push_back(text);
    }
    // A folder opens like a file; reading it is what goes bad.
    if (!file.is_open() || file.bad()) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, " is \"", path, "\", which cannot be read"));
    }
    const absl::Status status = ReadArguments(arguments);
    --depth_;
    return status;
  }

  absl::CommandLineFlag* Find(const std::string& name) const {
    const auto found = flags_.find(name);
    return found == flags_.end() ? nullptr : found->second;
  }

  absl::Status Unknown(const std::string& name) const {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, " is not a flag of ", program_.name, "; see ",
                     program_.name, " --help"));
  }

  const Program& program_;
  const FlagMap flags_;
  CommandLine line_;
  std::vector<std::string> on_line_;  // flags said there, not in a flag file
  int depth_ = 0;                     // of flag files
};

}  // namespace

absl::StatusOr<CommandLine> ReadCommandLine(
    const Program& program, const std::vector<std::string>& arguments,
    const std::function<const char*(const char*)>& environment) {
  Parser parser(program);
  absl::Status status = parser.ReadEnvironment(environment);
  if (status.ok()) status = parser.ReadArguments(arguments);
  if (status.ok()) status = parser.CheckCommand();
  if (!status.ok()) return status;
  return std::move(parser).line();
}

std::string HelpText(const Program& program,
                     const std::vector<std::string>& arguments) {
  const std::vector<Command> commands =
      arguments.empty() ? std::vector<Command>()
                        : Meant(program, absl::StrJoin(arguments, " "));
  std::string text = commands.empty() ? program.usage : "";
  for (const Command& command : commands) {
    absl::StrAppend(&text, text.empty() ? "" : "\n\n", command.help);
  }
  absl::StrAppend(&text, "\n\nFlags:\n");
  for (const auto& [name, flag] : FlagsOf(program)) {
    const auto words = WordsOf(program, *flag);
    const bool is_for_some = std::any_of(
        commands.begin(), commands.end(),
        [&words](const Command& command) { return IsFor(words, command); });
    if (!commands.empty() && !is_for_some) continue;
    absl::StrAppend(&text, "  --", name, "=", flag->DefaultValue(), "\n");
    for (const auto& line : absl::StrSplit(flag->Help(), '\n')) {
      absl::StrAppend(&text, "      ", line, "\n");
    }
  }
  absl::StrAppend(&text,
                  "  --flagfile=PATH\n"
                  "      Reads flags from a file, one a line.\n"
                  "  --version\n"
                  "      Tells the version.\n\n"
                  "The values shown are the defaults. Each flag --name is also "
                  "the environment\nvariable FLASH_NAME; the command line "
                  "wins.\n");
  return text;
}

std::vector<std::string> UnknownVariables(
    const Program& program, const std::vector<std::string>& names) {
  std::set<std::string> known = {"FLASH_FLAGFILE"};
  for (const auto& [name, flag] : FlagsOf(program)) {
    known.insert(VariableOf(name));
  }
  constexpr absl::string_view kHost = "_SERVICE_HOST";
  std::vector<std::string> services;
  for (const std::string& name : names) {
    if (absl::EndsWith(name, kHost)) {
      services.push_back(name.substr(0, name.size() - kHost.size()));
    }
  }
  const auto is_of_a_service = [&services](const std::string& name) {
    return std::any_of(services.begin(), services.end(),
                       [&name](const std::string& service) {
                         return name == service + "_PORT" ||
                                absl::StartsWith(name, service + "_PORT_") ||
                                absl::StartsWith(name, service + "_SERVICE_");
                       });
  };
  std::vector<std::string> unknown;
  for (const std::string& name : names) {
    if (absl::StartsWith(name, "FLASH_") && known.count(name) == 0 &&
        !is_of_a_service(name)) {
      unknown.push_back(name);
    }
  }
  return unknown;
}

std::vector<std::string> ReadCommandLineOrExit(const Program& program, int argc,
                                               char** argv) {
  auto line = ReadCommandLine(program, {argv + 1, argv + argc}, std::getenv);
  if (!line.ok()) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(),
                 std::string(line.status().message()).c_str());
    std::exit(2);
  }
  if (line->wants_help || line->wants_version) {
    const absl::Status printed = WriteOut(
        line->wants_help ? HelpText(program, line->arguments)
                         : absl::StrCat(program.name, " ", kVersion, "\n"));
    if (printed.ok()) std::exit(0);
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(),
                 std::string(printed.message()).c_str());
    std::exit(1);
  }
  return std::move(line->arguments);
}

}  // namespace flash
