#pragma once

namespace tandem {

/// With AddressSanitizer the bytes of a process tell nothing: most are shadow and redzones.
constexpr bool kAddressSanitizer =
#if defined(__SANITIZE_ADDRESS__)
    true;
#else
    false;
#endif

}  // namespace tandem
