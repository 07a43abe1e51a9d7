#pragma once
#include <exception>
#include <string>

#include "core/base/error.h"

namespace tandem {

/// The whole program: finds the subcommand in kCommands, runs it, prints what it throws to stderr. Returns
/// the exit status. Throws nothing.
int run_command_line(int argc, const char* const* argv);

/// How the program ends after an exception: the status, and the block that the user reads.
struct Failure {
  Status status;
  std::string text;
};

/// Error and ErrorList as they are; a lack of memory is does_not_fit; anything else is a fault of ours, and
/// the block asks for a report.
Failure failure_of(const std::exception_ptr& exception);

}  // namespace tandem
