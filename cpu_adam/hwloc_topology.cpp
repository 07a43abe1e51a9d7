#include "cpu_adam/hwloc_topology.h"

namespace tandem {

HwlocTopology load_hwloc(HwlocDevices devices) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  HwlocTopology topology(raw);
  if (devices == HwlocDevices::pci) hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

std::optional<int> near_node(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  hwloc_obj_t nearest = nullptr, node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    if (hwloc_bitmap_isincluded(cpus, node->cpuset) == 0) continue;
    if (nearest == nullptr || hwloc_bitmap_weight(node->cpuset) < hwloc_bitmap_weight(nearest->cpuset))
      nearest = node;
  }
  return nearest == nullptr ? std::nullopt : std::optional(static_cast<int>(nearest->os_index));
}

}  // namespace tandem
