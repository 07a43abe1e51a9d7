#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

/// Os index of the NUMA node next to a PCI device ("0000:3B:00.0", as CUDA gives it), by hwloc and, where
/// that doesn't know, by the kernel (bus/pci/devices/*/numa_node under sysfs_root). Nothing where neither
/// knows.
std::optional<int> numa_node_of_pci(std::string_view bus_id, const std::string& sysfs_root = "/sys");

/// Asks the system to place pages that nobody has touched yet on this node (an os index), and elsewhere when
/// it is full. False: it refuses (as containers may), and nothing has changed. pages begin on a page.
bool bind_to_node(std::span<std::byte> pages, int node);

/// Where gradients had best land that a device sends, and the weights lie that it fetches.
struct LandingNode {
  std::optional<int> node;  ///< none: as all other memory
  std::string why;          ///< for people; empty for a device without a bus id
};
/// The node next to the device, if it is known and memory can be bound to it.
LandingNode landing_node(std::string_view pci_bus_id, const std::string& sysfs_root = "/sys");

}  // namespace tandem
