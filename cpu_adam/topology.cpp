#include "cpu_adam/topology.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "core/base/error.h"
#include "cpu_adam/hwloc_topology.h"

namespace tandem {

namespace {

/// The affinity mask of this process, cpuset included (the kernel intersects them).
std::vector<int> process_affinity() {
  for (int most = 1024; most <= 1 << 20; most *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(most);
    const std::unique_ptr<cpu_set_t, decltype([](cpu_set_t* set) { CPU_FREE(set); })> set(CPU_ALLOC(most));
    if (sched_getaffinity(0, bytes, set.get()) != 0) continue;  // EINVAL: the kernel's mask is wider
    std::vector<int> cpus;
    for (int cpu = 0; cpu < most; ++cpu)
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
    return cpus;
  }
  return {0};
}

std::vector<int> all_cpus(hwloc_topology_t topology) {
  std::vector<int> cpus;
  hwloc_obj_t pu = nullptr;
  while ((pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr)
    cpus.push_back(static_cast<int>(pu->os_index));
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

bool any_allowed(hwloc_const_cpuset_t cpuset, const std::vector<int>& allowed) {
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](int cpu) { return hwloc_bitmap_isset(cpuset, static_cast<unsigned>(cpu)) != 0; });
}

/// Counts cores, allowed cores and the nodes they belong to. False if hwloc shows no core that is allowed.
bool count_cores(hwloc_topology_t hwloc, Topology& found) {
  // Machines whose firmware hides the cores (some virtual ones) show only their logical cpus.
  const auto kind = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_type(hwloc, kind, core)) != nullptr) {
    ++found.physical_cores;
    if (!any_allowed(core->cpuset, found.allowed_cpus)) continue;
    ++found.allowed_cores;
    const int node = near_node(hwloc, core->cpuset).value_or(0);
    const auto known = std::find_if(found.nodes.begin(), found.nodes.end(),
                                    [&](const NumaNode& n) { return n.os_index == node; });
    if (known == found.nodes.end())
      found.nodes.push_back({node, 1});
    else
      ++known->cores;
  }
  std::sort(found.nodes.begin(), found.nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.os_index < b.os_index; });
  return found.allowed_cores > 0;
}

/// Without hwloc: every allowed cpu counts as a core of one node.
void assume_cpus_are_cores(Topology& found) {
  found.physical_cores = found.allowed_cores = static_cast<int>(found.allowed_cpus.size());
  found.nodes = {{0, found.allowed_cores}};
}

std::string reason_of(const Topology& found, const TopologySources& sources) {
  std::string line = fmt::format("{} of {} physical cores allowed ({} cpus)", found.allowed_cores,
                                 found.physical_cores, found.allowed_cpus.size());
  if (!found.hwloc_found)
    line = fmt::format("hwloc finds nothing here, so each of the {} allowed cpus counts as a core",
                       found.allowed_cpus.size());
  if (found.quota_cpus > 0)
    line += fmt::format(", cgroup quota {:.2f} cpus ({})", found.quota_cpus, found.quota_file);
  if (sources.omp_num_threads)
    line += fmt::format("; OMP_NUM_THREADS={} is not obeyed", printable(*sources.omp_num_threads));
  return line;
}

}  // namespace

TopologySources TopologySources::of_process() {
  TopologySources sources;
  if (const char* omp = std::getenv("OMP_NUM_THREADS")) sources.omp_num_threads = omp;
  return sources;
}

Topology discover_topology(const TopologySources& sources) {
  Topology found;
  const HwlocTopology hwloc = load_hwloc();
  const bool other_machine = hwloc != nullptr && hwloc_topology_is_thissystem(hwloc.get()) == 0;
  if (sources.affinity)
    found.allowed_cpus = *sources.affinity;
  else
    found.allowed_cpus = other_machine ? all_cpus(hwloc.get()) : process_affinity();
  found.hwloc_found = hwloc != nullptr && count_cores(hwloc.get(), found);
  if (!found.hwloc_found) assume_cpus_are_cores(found);

  const CpuQuota quota = read_cpu_quota(sources.cgroup_root, sources.process_cgroups);
  found.quota_cpus = quota.cpus;
  found.quota_file = quota.file;
  found.threads = found.allowed_cores;
  // Rounded down: a static range on a thread that the quota throttles holds up all the others.
  if (quota.cpus > 0) found.threads = std::min<double>(found.threads, std::floor(quota.cpus));
  found.threads = std::max(found.threads, 1);
  found.reason = reason_of(found, sources);
  return found;
}

std::vector<int> threads_per_node(const Topology& topology, int threads) {
  const int64_t cores = std::accumulate(topology.nodes.begin(), topology.nodes.end(), int64_t{0},
                                        [](int64_t sum, const NumaNode& node) { return sum + node.cores; });
  ASSERT(cores > 0, "a topology without cores");
  std::vector<int> shares;
  int64_t before = 0;
  for (const NumaNode& node : topology.nodes) {
    const int64_t end = before + node.cores;
    shares.push_back(static_cast<int>(threads * end / cores - threads * before / cores));
    before = end;
  }
  return shares;
}

std::string node_map(const Topology& topology, int threads) {
  if (!topology.hwloc_found) return "hwloc finds nothing here: taken to be one node";
  const std::vector<int> shares = threads_per_node(topology, threads);
  std::string map;
  for (size_t i = 0; i < shares.size(); ++i)
    map += fmt::format("{}node {}: {} of {} threads, {} cores", i == 0 ? "" : "; ",
                       topology.nodes[i].os_index, shares[i], threads, topology.nodes[i].cores);
  return map;
}

}  // namespace tandem
