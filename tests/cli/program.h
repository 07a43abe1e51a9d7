#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tests/core/address_sanitizer.h"

namespace tandem {

/// What a finished program left.
struct Ran {
  int status = 0;  ///< exit status, or 128 + the signal that ended it
  std::string out, err;
  size_t peak_bytes = 0;  ///< the most that was resident at once
};

/// Runs build/.../tandem with the arguments, with an empty stdin. `prelude` runs in the child first (limits,
/// environment).
Ran run_tandem(
    const std::vector<std::string>& arguments, const std::function<void()>& prelude = [] {});

}  // namespace tandem
