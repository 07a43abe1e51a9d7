#pragma once
#include <memory>

#include "core/device/workers.h"

namespace tandem {

/// std::thread workers: `threads` in all, the caller of run() being one of them. Task i always goes to thread
/// i * threads / tasks, so ranges are static. Concurrent callers take turns, task groups whole.
std::unique_ptr<Workers> make_plain_pool(int threads);

}  // namespace tandem
