// tandem doctor: what this machine gives a run. Looks, and changes nothing.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/cpu_features.h"
#include "core/device/host_limits.h"
#include "core/io/json.h"
#include "cpu_adam/host_memory.h"
#include "cpu_adam/numa_memory.h"
#include "cpu_adam/topology.h"
#include "gpu/cuda_probe.h"
#include "offload/cli/command.h"
#include "offload/cli/options.h"

namespace tandem {

namespace {

/// A device that a config may name, or the reason why there is none of its kind.
struct DeviceRow {
  std::string name, kind;
  bool usable = false;
  std::string why;  ///< not usable: the reason; usable: what it is
  std::optional<size_t> memory_bytes;
  std::optional<std::string> compute_capability, driver;
};

struct Findings {
  std::vector<DeviceRow> devices;  ///< in the order in which device.kind "auto" tries them
  std::vector<Isa> isas;
  Topology topology;
  HostLimits limits;
  std::optional<size_t> disk_free_bytes;  ///< of the working folder's disk
};

std::optional<size_t> known(size_t bytes) {
  return bytes == SIZE_MAX ? std::nullopt : std::optional<size_t>(bytes);
}

std::vector<DeviceRow> cuda_rows() {
  const gpu::CudaProbe probe = gpu::probe_cuda();
  const auto driver = probe.driver.empty() ? std::nullopt : std::optional<std::string>(probe.driver);
  if (probe.cards.empty()) return {{"cuda", "cuda", false, probe.why, {}, {}, driver}};
  std::vector<DeviceRow> rows;
  for (const gpu::CudaCard& card : probe.cards) {
    const LandingNode landing = landing_node(card.pci_bus_id);
    const std::string node = landing.node ? fmt::format("on NUMA node {}", *landing.node) : landing.why;
    const std::string what = fmt::format("{} at {}, {}", card.name, card.pci_bus_id, node);
    rows.push_back({fmt::format("cuda:{}", rows.size()), "cuda", probe.why.empty(),
                    probe.why.empty() ? what : fmt::format("{}: {}", what, probe.why), card.memory_bytes,
                    card.compute_capability, driver});
  }
  return rows;
}

Findings look() {
  Findings found;
  found.isas = usable_isas();
  found.topology = discover_topology();
  found.limits = probe_host_limits();
  found.devices = cuda_rows();
  found.devices.push_back(
      {"host", "host", true, "the CPU; always there", known(found.limits.usable_bytes()), {}, {}});
  std::error_code none;
  const auto space = std::filesystem::space(".", none);
  if (!none) found.disk_free_bytes = space.available;
  return found;
}

template <class T>
json::Value or_null(const std::optional<T>& value) {
  return value ? json::Value(*value) : json::Value();
}

json::Value as_json(const Findings& found) {
  json::Array devices, isas;
  for (const DeviceRow& row : found.devices)
    devices.push_back(json::Object{{"name", row.name},
                                   {"kind", row.kind},
                                   {"usable", row.usable},
                                   {"why", row.why},
                                   {"memory_bytes", or_null(row.memory_bytes)},
                                   {"compute_capability", or_null(row.compute_capability)},
                                   {"driver", or_null(row.driver)}});
  for (const Isa isa : found.isas) isas.emplace_back(name_of(isa));
  const HostLimits& limits = found.limits;
  return json::Object{{"devices", std::move(devices)},
                      {"cpu", json::Object{{"isa", std::move(isas)},
                                           {"physical_cores", found.topology.physical_cores},
                                           {"allowed_cpus", found.topology.allowed_cpus.size()},
                                           {"numa_nodes", found.topology.nodes.size()}}},
                      {"limits", json::Object{{"cgroup_bytes", or_null(limits.cgroup_bytes)},
                                              {"available_bytes", or_null(limits.available_bytes)},
                                              // On the host device pinned memory is plain memory.
                                              {"pinnable_bytes", or_null(known(limits.usable_bytes()))},
                                              {"memlock_bytes", or_null(limits.memlock_bytes)},
                                              {"disk_free_bytes", or_null(found.disk_free_bytes)}}}};
}

std::string size_text(std::optional<size_t> bytes, const char* absent) {
  constexpr size_t kMiB = size_t{1} << 20, kGiB = size_t{1} << 30;
  if (!bytes) return absent;
  if (*bytes < kGiB) return fmt::format("{:.1f} MiB", static_cast<double>(*bytes) / kMiB);
  return fmt::format("{:.1f} GiB", static_cast<double>(*bytes) / kGiB);
}

/// What device.kind "auto" takes, and why it takes nothing before it: "cuda: no NVIDIA driver -> host".
std::string automatic_choice(const std::vector<DeviceRow>& devices) {
  std::string text;
  for (const DeviceRow& row : devices) {
    if (row.usable) return text + row.name;
    text += fmt::format("{}: {} -> ", row.name, row.why);
  }
  return text + "none";
}

void print(const Findings& found) {
  fmt::print("devices\n");
  for (const DeviceRow& row : found.devices)
    fmt::print("  {:<16}{}: {}{}\n", row.name, row.usable ? "usable" : "not usable", row.why,
               row.memory_bytes ? ", " + size_text(row.memory_bytes, "") : "");
  fmt::print("  {:<16}{}\n", "auto", automatic_choice(found.devices));
  std::string isas;
  for (const Isa isa : found.isas) isas += fmt::format("{}{}", isas.empty() ? "" : ", ", name_of(isa));
  const Topology& topology = found.topology;
  fmt::print("cpu\n");
  fmt::print("  {:<16}{}\n", "isa", isas);
  fmt::print("  {:<16}{} physical; {} cpus allowed; NUMA nodes with such cpus: {}\n", "cores",
             topology.physical_cores, topology.allowed_cpus.size(), topology.nodes.size());
  fmt::print("  {:<16}{}: {}\n", "threads", topology.threads, topology.reason);
  fmt::print("  {:<16}{}\n", "numa", node_map(topology, topology.threads));
  fmt::print("  {:<16}{}\n", "huge pages", huge_page_policy());
  fmt::print("limits\n");
  fmt::print("  {:<16}{}\n", "control group", size_text(found.limits.cgroup_bytes, "none"));
  fmt::print("  {:<16}{}\n", "available", size_text(found.limits.available_bytes, "unknown"));
  fmt::print("  {:<16}{}\n", "pinnable", size_text(known(found.limits.usable_bytes()), "unknown"));
  fmt::print("  {:<16}{}\n", "memlock", size_text(found.limits.memlock_bytes, "none"));
  fmt::print("  {:<16}{}\n", "disk free here", size_text(found.disk_free_bytes, "unknown"));
}

class Doctor : public Command {
 public:
  void add_options(CLI::App& app) override { add_json_option(app, json_); }
  Status run(const GlobalOptions&) override {
    const Findings found = look();
    if (json_)
      fmt::print("{}\n", json::dump(as_json(found), 2));
    else
      print(found);
    return Status::ok;
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_doctor() { return std::make_unique<Doctor>(); }

}  // namespace tandem
