#pragma once
#include <memory>
#include <string>

#include "core/device/workers.h"

namespace tandem {

/// std::thread workers: `threads` in all, the caller of run() being one of them. Ranges, turns and errors as
/// StaticPool says. `reason` ends the line that describe() gives.
std::unique_ptr<Workers> make_plain_pool(int threads, std::string reason = {});

}  // namespace tandem
