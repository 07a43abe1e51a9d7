#pragma once
#include <functional>
#include <string>
#include <vector>

namespace tandem {

/// What a finished program left.
struct Ran {
  int status = 0;  ///< exit status, or 128 + the signal that ended it
  std::string out, err;
  size_t peak_bytes = 0;  ///< the most that was resident at once
};

/// With AddressSanitizer the bytes of a process tell nothing: most are shadow and redzones.
constexpr bool kAddressSanitizer =
#if defined(__SANITIZE_ADDRESS__)
    true;
#else
    false;
#endif

/// Runs build/.../tandem with the arguments, with an empty stdin. `prelude` runs in the child first (limits,
/// environment).
Ran run_tandem(
    const std::vector<std::string>& arguments, const std::function<void()>& prelude = [] {});

}  // namespace tandem
