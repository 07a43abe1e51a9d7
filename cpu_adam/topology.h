#pragma once
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// A NUMA node that has cores this process may use. Nodes without such cores (memory only) are left out.
struct NumaNode {
  int os_index = 0;
  int cores = 0;  ///< physical cores with at least one allowed cpu
};

/// The processors that this process may really use.
struct Topology {
  bool hwloc_found = false;       ///< false: hwloc found nothing; cores are then taken to be the allowed cpus
  int physical_cores = 0;         ///< of the machine, as far as the cpuset shows it
  int allowed_cores = 0;          ///< physical cores with at least one cpu in the affinity mask
  std::vector<int> allowed_cpus;  ///< os indices, ascending
  std::vector<NumaNode> nodes;    ///< at least one, by os index
  double quota_cpus = 0;          ///< cgroup cpu quota in cpus; 0 = none
  std::string quota_file;         ///< where it stands
  /// Compute threads that are allowed: allowed cores, at most the whole cpus of the quota, at least 1.
  int threads = 1;
  /// One line: the threads and what decided them; an OMP_NUM_THREADS that is set is named as not obeyed.
  std::string reason;
};

/// What discover_topology reads; tests put other things in its place.
struct TopologySources {
  std::string cgroup_root = "/sys/fs/cgroup";
  std::string process_cgroups = "/proc/self/cgroup";
  std::optional<std::vector<int>>
      affinity;  ///< cpus; none = this process's mask (every cpu of a synthetic topology)
  std::optional<std::string> omp_num_threads;
  /// This process and its environment.
  static TopologySources of_process();
};

/// Reads the machine through hwloc (which obeys HWLOC_SYNTHETIC and HWLOC_XMLFILE). Never fails.
Topology discover_topology(const TopologySources& sources = TopologySources::of_process());

struct CpuQuota {
  double cpus = 0;  ///< 0 = none
  std::string file;
};

/// The tightest quota of the process's cgroup and of those above it: cpu.max (v2), cpu.cfs_quota_us (v1).
CpuQuota read_cpu_quota(const std::string& cgroup_root, const std::string& process_cgroups);

/// `threads` shared out over the nodes in proportion to their cores; sums to `threads`. Some may get none.
std::vector<int> threads_per_node(const Topology& topology, int threads);
/// One line: those shares, node by node; or that hwloc finds nothing.
std::string node_map(const Topology& topology, int threads);

}  // namespace tandem
