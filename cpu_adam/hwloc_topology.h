#pragma once
#include <hwloc.h>

#include <memory>
#include <optional>
#include <type_traits>

namespace tandem {

struct HwlocDestroyer {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, HwlocDestroyer>;

/// pci: PCI devices too, which takes longer to look for.
enum class HwlocDevices : uint8_t { none, pci };

/// Null where hwloc can't load anything. Obeys HWLOC_SYNTHETIC, HWLOC_XMLFILE and the like.
HwlocTopology load_hwloc(HwlocDevices devices = HwlocDevices::none);

/// Os index of the NUMA node that these cpus have memory on: of the nodes near to all of them the one with
/// the fewest cpus (a node without cpus of its own counts as near to all around it), of several such (HBM
/// beside DDR) the first. Nothing if there is none.
std::optional<int> near_node(hwloc_topology_t topology, hwloc_const_cpuset_t cpus);

}  // namespace tandem
