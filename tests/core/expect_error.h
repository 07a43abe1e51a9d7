#pragma once
#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"

namespace tandem {

/// Runs the action and expects an Error of this status whose block holds all the parts. Every error says what
/// to do.
template <class Action>
void expect_error(Status status, std::initializer_list<const char*> parts, Action&& action) {
  try {
    action();
    ADD_FAILURE() << "no error, but expected one with \"" << *parts.begin() << '"';
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.status()), static_cast<int>(status)) << error.what();
    EXPECT_FALSE(error.where().empty()) << error.what();
    EXPECT_FALSE(error.hint().empty()) << error.what();
    for (const char* part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << "\"" << part << "\" is not in:\n"
                                                                         << error.what();
  }
}

}  // namespace tandem
