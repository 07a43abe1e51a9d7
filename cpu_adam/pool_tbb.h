#pragma once
#include <memory>
#include <string>

#include "core/device/workers.h"
#include "cpu_adam/topology.h"

namespace tandem {

/// oneTBB workers: one arena per NUMA node with cores, its threads bound to the node (where oneTBB sees the
/// same nodes as `topology`; else one unbound arena). Thread k belongs to the node that threads_per_node
/// gives it; inside a node oneTBB picks the thread. Ranges, turns and errors as StaticPool says. The caller
/// of run() works too.
std::unique_ptr<Workers> make_tbb_pool(int threads, const Topology& topology, std::string reason = {});

}  // namespace tandem
