#include "offload/cli/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <vector>

#include "core/base/edit_distance.h"
#include "offload/cli/command.h"
#include "offload/version.h"

namespace tandem {

namespace {

constexpr const char* kWhere = "command line";

/// The name that is meant by a misspelt word: the one with the fewest edits, at most a third of its length;
/// else empty.
std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  std::string best;
  size_t fewest = SIZE_MAX;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(word.substr(0, 64), name);
    if (distance > std::max<size_t>(1, name.size() / 3) || distance >= fewest) continue;
    fewest = distance;
    best = name;
  }
  return best;
}

/// The parts of the command line, and the command that each subcommand's name stands for.
class CommandLine {
 public:
  CommandLine() {
    add_common_flags(app_);
    app_.require_subcommand(0, 1);  // none is told below, in our words
    for (const CommandRow& row : kCommands) {
      commands_.push_back(row.make());
      CLI::App* sub = app_.add_subcommand(row.name, row.description);
      add_common_flags(*sub);
      commands_.back()->add_options(*sub);
    }
  }

  Status run(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::Success& asked_for) {  // --help, --version
      app_.exit(asked_for, std::cout, std::cerr);
      return Status::ok;
    } catch (const CLI::ParseError& error) {
      throw Error(Status::usage, error.what(), kWhere, help_hint());
    }
    check_command_given();
    check_nothing_left(*app_.get_subcommands().front());
    check_nothing_left(app_);
    return selected().run(global_);
  }

 private:
  void add_common_flags(CLI::App& app) {
    app.set_version_flag("--version", fmt::format("tandem {}", kVersion), "Print the version and end");
    app.add_flag("--quiet", global_.quiet, "No progress on stderr; warnings and errors stay");
    app.allow_extras();  // what nobody takes is told below, with the nearest name
  }

  Command& selected() {
    const std::string name = app_.get_subcommands().front()->get_name();
    size_t i = 0;
    while (name != kCommands[i].name) ++i;
    return *commands_[i];
  }

  void check_command_given() const {
    if (!app_.get_subcommands().empty()) return;
    check_nothing_left(app_);
    throw Error(Status::usage, "no command given", kWhere, help_hint());
  }

  /// Every word of this part was understood; else names the first that was not, and the nearest one that is.
  void check_nothing_left(const CLI::App& app) const {
    const std::vector<std::string> left = app.remaining();
    if (left.empty()) return;
    const std::string& word = left.front();
    const bool option = word.starts_with("-");
    const bool command = !option && &app == &app_ && app_.get_subcommands().empty();
    const char* kind = option ? "unknown option" : command ? "unknown command" : "unexpected argument";
    const std::string near = option || command ? nearest(word, option ? options_of(app) : commands()) : "";
    throw Error(Status::usage, fmt::format("{} \"{}\"", kind, printable(word)), kWhere,
                near.empty() ? help_hint() : near);
  }

  static std::vector<std::string> options_of(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    return names;
  }

  static std::vector<std::string> commands() {
    std::vector<std::string> names;
    for (const CommandRow& row : kCommands) names.emplace_back(row.name);
    return names;
  }

  [[nodiscard]] std::string help_hint() const {
    const auto chosen = app_.get_subcommands();
    return chosen.empty() ? "tandem --help" : fmt::format("tandem {} --help", chosen.front()->get_name());
  }

  CLI::App app_{"Tandem trains large language models on one GPU workstation, with the optimizer on the CPU.",
                "tandem"};
  GlobalOptions global_;
  std::vector<std::unique_ptr<Command>> commands_;  // in the order of kCommands
};

/// A full disk or a closed pipe must not look like success.
void check_output_written() {
  std::cout.flush();
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  CHECK(written, Status::failed, fmt::format("can't write the result: {}", std::strerror(errno)), "stdout");
}

}  // namespace

Failure failure_of(const std::exception_ptr& exception) {
  constexpr const char* kReport =
      "this is a fault in tandem: please report it, with the command and this text";
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {error.status(), error.what()};
  } catch (const ErrorList& errors) {
    return {errors.status(), errors.what()};
  } catch (const std::bad_alloc&) {
    return {Status::does_not_fit, Error(Status::does_not_fit, "the system refused to give more memory", "",
                                        "`tandem doctor`, which shows the limits that hold here")
                                      .what()};
  } catch (const std::exception& error) {
    return {Status::failed, Error(Status::failed, error.what(), "", kReport).what()};
  } catch (...) {
    return {Status::failed, Error(Status::failed, "an unknown exception", "", kReport).what()};
  }
}

int run_command_line(int argc, const char* const* argv) {
  try {
    const Status status = CommandLine().run(argc, argv);
    check_output_written();
    return static_cast<int>(status);
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    fmt::print(stderr, "{}\n", failure.text);
    return static_cast<int>(failure.status);
  }
}

}  // namespace tandem
