#include <fstream>
#include <sstream>
#include <vector>

#include "cpu_adam/topology.h"

namespace tandem {

namespace {

/// "/a/b" -> "/a/b", "/a", "": the group and those above it. A container may not see its own folder, but
/// always the root.
std::vector<std::string> with_parents(std::string group) {
  std::vector<std::string> all;
  while (!group.empty() && group != "/") {
    all.push_back(group);
    group.erase(group.find_last_of('/'));
  }
  all.emplace_back();
  return all;
}

/// Reads whitespace-separated words of a file; empty if it can't be read.
std::vector<std::string> words(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

/// quota and period in microseconds, as written; no quota ("max", "-1", nonsense) is 0.
double cpus_of(const std::string& quota, const std::string& period) {
  std::istringstream quota_in(quota), period_in(period);
  double quota_us = 0, period_us = 0;
  if (!(quota_in >> quota_us) || !(period_in >> period_us) || quota_us <= 0 || period_us <= 0) return 0;
  return quota_us / period_us;
}

void tighten(CpuQuota& tightest, double cpus, const std::string& file) {
  if (cpus > 0 && (tightest.cpus == 0 || cpus < tightest.cpus)) tightest = {cpus, file};
}

void read_v2(CpuQuota& tightest, const std::string& root, const std::string& group) {
  for (const std::string& folder : with_parents(group)) {
    const std::string file = root + folder + "/cpu.max";
    const auto found = words(file);
    if (found.size() == 2) tighten(tightest, cpus_of(found[0], found[1]), file);
  }
}

void read_v1(CpuQuota& tightest, const std::string& controller_root, const std::string& group) {
  for (const std::string& folder : with_parents(group)) {
    const std::string file = controller_root + folder + "/cpu.cfs_quota_us";
    const auto quota = words(file), period = words(controller_root + folder + "/cpu.cfs_period_us");
    if (quota.size() == 1 && period.size() == 1) tighten(tightest, cpus_of(quota[0], period[0]), file);
  }
}

bool lists_cpu(const std::string& controllers) {
  std::istringstream in(controllers);
  for (std::string name; std::getline(in, name, ',');)
    if (name == "cpu") return true;
  return false;
}

}  // namespace

CpuQuota read_cpu_quota(const std::string& cgroup_root, const std::string& process_cgroups) {
  CpuQuota tightest;
  std::ifstream in(process_cgroups);
  // HIERARCHY:CONTROLLERS:GROUP, for v2 0::GROUP (cgroups(7)).
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      read_v2(tightest, cgroup_root, group);
      read_v2(tightest, cgroup_root + "/unified", group);  // where both versions are mounted
    } else if (lists_cpu(controllers)) {
      read_v1(tightest, cgroup_root + "/" + controllers, group);
      if (controllers != "cpu") read_v1(tightest, cgroup_root + "/cpu", group);
    }
  }
  return tightest;
}

}  // namespace tandem
