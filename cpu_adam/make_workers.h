#pragma once
#include <cstdint>
#include <memory>

#include "core/device/workers.h"
#include "cpu_adam/topology.h"

namespace tandem {

enum class PoolKind : uint8_t {
  tbb,    ///< oneTBB, one arena per NUMA node, its threads bound to the node
  plain,  ///< std::thread, unbound
};

/// tbb, or plain in a build without oneTBB.
PoolKind usual_pool();

/// The compute threads of this process. threads: device.threads; 0 = all that the topology allows; more than
/// that is done as asked, and describe() says so. Error(usage) for tbb in a build without it.
std::unique_ptr<Workers> make_workers(PoolKind kind, int threads,
                                      const Topology& topology = discover_topology());

}  // namespace tandem
