// Slots lie on the NUMA node next to the card that sends and fetches them; masters and moments do not.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>

#include "cpu_adam/make_workers.h"
#include "offload/optimizer_states.h"
#include "tests/cpu_adam/fake_machine.h"
#include "tests/offload/engine_rig.h"
#include "tests/offload/failure_device.h"

namespace tandem {
namespace {

/// Remembers the nodes that were asked for.
class AskedMemory : public testing::TestMemory {
 public:
  [[nodiscard]] Buffer allocate_for(size_t bytes, std::string_view scope, const BufferUse& use) override {
    nodes[std::string(scope)].insert(use.node);
    return allocate(bytes, scope);
  }
  std::map<std::string, std::set<std::optional<int>>> nodes;
};

std::map<std::string, std::set<std::optional<int>>> nodes_asked(const std::string& pci_bus_id) {
  testing::EngineOptions options;
  options.dtype = DType::bf16;
  options.policy.schedule = Schedule::delayed;  // two slots
  const ParamTable table(options.arch);
  const TrainSetup setup = testing::setup_of(options, table);
  const auto workers = make_workers(PoolKind::plain, 1);
  testing::FailureDevice device(*workers, {}, {});
  device.pci_bus_id = pci_bus_id;
  AskedMemory memory;
  const OptimizerStates states(setup, table, device, memory);
  return memory.nodes;
}

TEST(MemoryLanding, OfACardIsTheNodeNextToIt) {
  const FakeMachine machine({{0, {0, 1}}, {1, {2, 3}, {}, "0000:65:00.0"}});
  const auto nodes = nodes_asked("0000:65:00.0");
  const std::set<std::optional<int>> next_to_it{1}, nowhere{std::nullopt};
  EXPECT_EQ(nodes.at("slots"), next_to_it);
  for (const char* scope : {"master", "exp_avg", "exp_avg_sq"}) EXPECT_EQ(nodes.at(scope), nowhere) << scope;
}

TEST(MemoryLanding, OfNoCardAndOfAnUnknownOneIsAsTheMasters) {
  const FakeMachine machine({{0, {0, 1}}, {1, {2, 3}, {}, "0000:65:00.0"}});
  for (const char* bus_id : {"", "0000:66:00.0"})
    EXPECT_EQ(nodes_asked(bus_id).at("slots"), std::set<std::optional<int>>{std::nullopt}) << bus_id;
}

}  // namespace
}  // namespace tandem
