#pragma once
#include <CLI/CLI.hpp>
#include <memory>

#include "core/base/error.h"

namespace tandem {

/// What every subcommand understands.
struct GlobalOptions {
  bool quiet = false;  ///< no progress on stderr; warnings and errors stay
};

/// One subcommand. Made before the command line is parsed; its members are where its options land.
class Command {
 public:
  Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;
  /// Adds the command's options to its own part of the command line.
  virtual void add_options(CLI::App& app) = 0;
  /// Runs after parsing. Results go to stdout, the rest to stderr; throws what a user should read.
  virtual Status run(const GlobalOptions& global) = 0;
};

/// One row of the table of subcommands.
struct CommandRow {
  const char* name;
  const char* description;
  std::unique_ptr<Command> (*make)();
};

std::unique_ptr<Command> make_train();
std::unique_ptr<Command> make_plan();
std::unique_ptr<Command> make_eval();
std::unique_ptr<Command> make_inspect();
std::unique_ptr<Command> make_export();
std::unique_ptr<Command> make_doctor();

/// Every subcommand, in the order of --help.
inline constexpr CommandRow kCommands[] = {
    {"train", "Train a model as the config says", make_train},
    {"plan", "Show the bytes that a run needs of each memory, and whether it fits (no times yet)", make_plan},
    {"eval", "Measure the loss of a model or checkpoint on token files", make_eval},
    {"inspect", "Show what a checkpoint, model or token file holds, and what is wrong with it", make_inspect},
    {"export", "Write a model or checkpoint as an ordinary Hugging Face folder", make_export},
    {"doctor", "Show the devices, the CPU and the limits that hold here", make_doctor},
};

}  // namespace tandem
