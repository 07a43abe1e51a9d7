#pragma once
// Machines that aren't this one: cgroups, sysfs and hwloc's XML in a folder of their own.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cpu_adam/topology.h"

namespace tandem {

/// An environment variable for as long as this lives.
class WithEnvironment {
 public:
  WithEnvironment(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~WithEnvironment() { unsetenv(name_); }
  WithEnvironment(const WithEnvironment&) = delete;
  WithEnvironment& operator=(const WithEnvironment&) = delete;

 private:
  const char* name_;
};

/// Files in a folder of the running test.
class FakeFiles {
 public:
  FakeFiles()
      : root_(std::filesystem::path(testing::TempDir()) /
              fmt::format("fake_{}_{}", getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(root_);
  }
  ~FakeFiles() { std::filesystem::remove_all(root_); }
  FakeFiles(const FakeFiles&) = delete;
  FakeFiles& operator=(const FakeFiles&) = delete;
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  [[nodiscard]] std::string path(const std::string& file = "") const {
    return file.empty() ? root_.string() : (root_ / file).string();
  }

 private:
  std::filesystem::path root_;
};

/// A cgroup tree.
class FakeCgroups : public FakeFiles {
 public:
  /// Reads nothing of the real machine's limits.
  [[nodiscard]] TopologySources sources() const {
    TopologySources sources;
    sources.cgroup_root = path();
    sources.process_cgroups = path("self");
    return sources;
  }
  [[nodiscard]] CpuQuota quota() const { return read_cpu_quota(path(), path("self")); }
};

/// A node of a machine that hwloc reads from XML.
struct FakeNode {
  int os_index = 0;
  std::vector<int> cpus;          ///< each a core of its own; none: a node of memory alone
  std::vector<int> offline = {};  ///< further cpus, not running
  std::string pci_bus_id = {};    ///< of a card beside these cpus
};

/// A machine in hwloc's XML while this lives. pci_bus_id: a card of which it is only known that it is there.
class FakeMachine {
 public:
  explicit FakeMachine(const std::vector<FakeNode>& nodes, const std::string& pci_bus_id = {}) {
    std::vector<int> online, all, ids;
    for (const FakeNode& node : nodes) {
      online.insert(online.end(), node.cpus.begin(), node.cpus.end());
      all.insert(all.end(), node.cpus.begin(), node.cpus.end());
      all.insert(all.end(), node.offline.begin(), node.offline.end());
      ids.push_back(node.os_index);
    }
    std::string text = "<topology version=\"2.0\">\n";
    text += object("Machine", 0, sets(online, all, ids));
    for (const FakeNode& node : nodes)
      if (node.cpus.empty()) text += memory(node, {});
    for (const FakeNode& node : nodes)
      if (!node.cpus.empty()) text += package(node);
    files_.write("machine.xml", text + card(pci_bus_id) + "</object>\n</topology>\n");
  }

 private:
  static std::string mask(const std::vector<int>& bits) {
    uint32_t mask = 0;
    for (const int bit : bits) mask |= 1U << bit;
    return fmt::format("0x{:08x}", mask);
  }
  static std::string sets(const std::vector<int>& cpus, const std::vector<int>& all,
                          const std::vector<int>& nodes) {
    return fmt::format(R"(cpuset="{0}" complete_cpuset="{1}" nodeset="{2}" complete_nodeset="{2}")",
                       mask(cpus), mask(all), mask(nodes));
  }
  std::string object(const char* type, int os_index, const std::string& attributes) {
    return fmt::format("<object type=\"{}\" os_index=\"{}\" {} gp_index=\"{}\">\n", type, os_index,
                       attributes, ++objects_);
  }
  std::string memory(const FakeNode& node, const std::vector<int>& all) {
    const std::string attributes = sets(node.cpus, all, {node.os_index}) + " local_memory=\"1073741824\"";
    return object("NUMANode", node.os_index, attributes) + "</object>\n";
  }
  std::string package(const FakeNode& node) {
    std::vector<int> all = node.cpus;
    all.insert(all.end(), node.offline.begin(), node.offline.end());
    std::string text = object("Package", node.os_index, sets(node.cpus, all, {node.os_index}));
    text += memory(node, all);
    for (const int cpu : node.cpus) {
      const std::string own = sets({cpu}, {cpu}, {node.os_index});
      text += object("Core", cpu, own) + object("PU", cpu, own) + "</object></object>\n";
    }
    return text + card(node.pci_bus_id) + "</object>\n";
  }
  std::string card(const std::string& bus_id) {
    if (bus_id.empty()) return {};
    const std::string bus =
        bus_id.substr(0, 4) + ":[" + bus_id.substr(5, 2) + "-" + bus_id.substr(5, 2) + "]";
    std::string text =
        fmt::format(R"(<object type="Bridge" gp_index="{}" bridge_type="0-1" depth="0" bridge_pci="{}">)",
                    ++objects_, bus);
    text += fmt::format(R"(<object type="PCIDev" gp_index="{}" pci_busid="{}")", ++objects_, bus_id);
    return text + " pci_type=\"0302 [10de:2330] [10de:16c1] a1\" pci_link_speed=\"0\"/></object>\n";
  }

  int objects_ = 0;
  FakeFiles files_;
  WithEnvironment variable_{"HWLOC_XMLFILE", files_.path("machine.xml")};
};

}  // namespace tandem
