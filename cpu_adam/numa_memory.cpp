#include "cpu_adam/numa_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "core/base/error.h"
#include "cpu_adam/hwloc_topology.h"

namespace tandem {

namespace {

/// The node that all cpus around the device have their memory on; none if hwloc doesn't know the device, or
/// only that it is somewhere in a machine of several nodes.
std::optional<int> node_by_hwloc(const std::string& bus_id) {
  const HwlocTopology topology = load_hwloc(HwlocDevices::pci);
  if (topology == nullptr) return {};
  const hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology.get(), bus_id.c_str());
  if (device == nullptr) return {};
  const hwloc_obj_t around = hwloc_get_non_io_ancestor_obj(topology.get(), device);
  std::optional<int> common;
  hwloc_obj_t cpu = nullptr;
  while ((cpu = hwloc_get_next_obj_inside_cpuset_by_type(topology.get(), around->cpuset, HWLOC_OBJ_PU,
                                                         cpu)) != nullptr) {
    const std::optional<int> node = near_node(topology.get(), cpu->cpuset);
    if (!node || (common && common != node)) return {};
    common = node;
  }
  return common;
}

std::optional<int> node_by_sysfs(std::string bus_id, const std::string& root) {
  // The kernel writes the hexadecimal digits small, CUDA large.
  std::transform(bus_id.begin(), bus_id.end(), bus_id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::ifstream in(root + "/bus/pci/devices/" + bus_id + "/numa_node");
  int node = -1;  // what stands there where the firmware doesn't say
  return in >> node && node >= 0 ? std::optional(node) : std::nullopt;
}

/// A page that goes when this does.
class ScratchPage {
 public:
  ScratchPage()
      : bytes_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~ScratchPage() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  ScratchPage(const ScratchPage&) = delete;
  ScratchPage& operator=(const ScratchPage&) = delete;
  [[nodiscard]] std::span<std::byte> span() const {
    return {static_cast<std::byte*>(data_), data_ == MAP_FAILED ? 0 : bytes_};
  }

 private:
  const size_t bytes_;
  void* const data_;
};

}  // namespace

std::optional<int> numa_node_of_pci(std::string_view bus_id, const std::string& sysfs_root) {
  const std::optional<int> node = node_by_hwloc(std::string(bus_id));
  return node ? node : node_by_sysfs(std::string(bus_id), sysfs_root);
}

bool bind_to_node(std::span<std::byte> pages, int node) {
  const HwlocTopology topology = load_hwloc();
  if (topology == nullptr || pages.empty()) return false;
  const hwloc_obj_t found = hwloc_get_numanode_obj_by_os_index(topology.get(), static_cast<unsigned>(node));
  // Not strictly: a node that is full must not end the run.
  return found != nullptr &&
         hwloc_set_area_membind(topology.get(), pages.data(), pages.size(), found->nodeset,
                                HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) == 0;
}

LandingNode landing_node(std::string_view pci_bus_id, const std::string& sysfs_root) {
  if (pci_bus_id.empty()) return {};
  const std::optional<int> node = numa_node_of_pci(pci_bus_id, sysfs_root);
  if (!node) return {{}, fmt::format("it is not known which node {} is next to", pci_bus_id)};
  if (!bind_to_node(ScratchPage().span(), *node))
    return {{}, fmt::format("the system refuses to bind memory to node {}, next to {}", *node, pci_bus_id)};
  return {node, fmt::format("next to {}", pci_bus_id)};
}

}  // namespace tandem
