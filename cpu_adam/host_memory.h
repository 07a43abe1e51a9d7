#pragma once
#include <cstdint>
#include <memory>

#include "core/device/memory.h"
#include "core/device/workers.h"

namespace tandem {

enum class HugePages : uint8_t { never, where_allowed };

/// Host memory straight from the system: exact sizes, page-aligned, zero-filled. Every page is written once
/// by the thread whose static range it is in (of the buffer cut into equal parts, as Workers does it), so it
/// is resident when allocate returns and lies on that thread's NUMA node. where_allowed asks for transparent
/// huge pages, which the system may refuse without consequence. Counters count the bytes asked for. 0 bytes
/// give an empty buffer. `workers` must outlive it; buffers may outlive it. allocate calls workers.run: not
/// from inside a task.
std::unique_ptr<HostMemory> make_host_memory(Workers& workers, HugePages huge = HugePages::where_allowed);

}  // namespace tandem
