#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/device/memory.h"
#include "core/device/workers.h"

namespace tandem {

enum class HugePages : uint8_t { never, where_allowed };

/// Writes a zero into every page of memory (which begins on a page). A page is first touched by the thread
/// that will have its middle when the ranges are worked on, so with more than a page for each thread by the
/// one that has the largest part of it; pages whose middle is in no range by equal static ranges of the
/// whole. A thread's part of a range is contiguous: only the pages at its two ends may be shared.
void first_touch(Workers& workers, std::span<std::byte> memory, std::span<const StaticRange> ranges);

/// Huge pages for memory of so many bytes, used in so many ranges by threads on so many NUMA nodes? A border
/// between two nodes lies in a huge page, half of which on average is on the wrong node. False when that
/// would be above a twentieth of the memory.
bool huge_pages_pay(size_t bytes, size_t ranges, int nodes);

/// Host memory straight from the system: exact sizes, page-aligned, zero-filled, resident when allocate
/// returns (first_touch). allocate_for puts pages on the node of the thread that will work on them, or, where
/// the use names a node, there (if the system allows it: landing_node() of cpu_adam/numa_memory.h says).
/// where_allowed asks for transparent huge pages where they pay, which the system may refuse without
/// consequence. Counters count the bytes asked for. 0 bytes give an empty buffer. `workers` must outlive it;
/// buffers may outlive it. allocate calls workers.run: not from inside a task.
std::unique_ptr<HostMemory> make_host_memory(Workers& workers, HugePages huge = HugePages::where_allowed);

/// What the system does about transparent huge pages: "always", "madvise" (those who ask get them: we do),
/// "never", or "unknown".
std::string huge_page_policy(const std::string& sysfs_root = "/sys");

}  // namespace tandem
