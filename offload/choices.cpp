#include "offload/choices.h"

#include <algorithm>
#include <cmath>

#include "offload/fit.h"

namespace tandem {

namespace {

int64_t parameters_of(const ParamTable& table, BlockId block) {
  int64_t count = 0;
  for (const ParamSpec& spec : table.of_block(block)) count += spec.frozen ? 0 : spec.numel;
  return count;
}

/// A policy, and what a layer then keeps.
struct ActivationChoice {
  Config::ActivationPolicy policy;
  Keep keep;
  const char* name;
};
/// In the order in which "auto" tries them.
constexpr ActivationChoice kActivations[] = {
    {Config::ActivationPolicy::keep, Keep::all, "keep"},
    {Config::ActivationPolicy::recompute, Keep::input, "recompute"},
    {Config::ActivationPolicy::recompute_offload, Keep::input_offloaded, "recompute_offload"},
};

/// What a layer may keep, what is preferred first.
std::vector<Keep> keeps_of(const TrainSetup& setup) {
  if (!setup.open.activations) return {setup.keep};
  std::vector<Keep> keeps;
  for (const ActivationChoice& choice : kActivations) keeps.push_back(choice.keep);
  return keeps;
}

/// The device has room for its part of the setup; where its memory is the host's, the host for all of it.
bool has_room(const Machine& machine, const TrainSetup& setup, const ParamTable& table) {
  const MemoryPlan plan = plan_memory(setup, table);
  if (plan.device_bytes() > machine.device_limit) return false;
  if (!machine.device_shares_host()) return true;
  const size_t host = plan.host_bytes() + fixed_bytes(machine, setup, table).working;
  return host_shortfall(machine, host, plan.device_bytes()).empty();
}

/// Where the optimizer of block 0 may be, what is preferred first.
std::vector<Placement> places_of_embedding(const TrainSetup& setup, const ParamTable& table) {
  if (!setup.open.embedding) return {setup.placement.front()};
  const bool profits = setup.policy.schedule == Schedule::exact && table.block(0).trained > 0;
  // Whoever streams weights has no room to spare on the device.
  if (profits && setup.window == 0 && setup.states == StateFormat{})
    return {Placement::device, Placement::host};
  return {Placement::host};
}

}  // namespace

Keep keep_of(Config::ActivationPolicy policy) {
  const auto* choice = std::ranges::find(kActivations, policy, &ActivationChoice::policy);
  return choice == std::end(kActivations) ? std::prev(choice)->keep : choice->keep;
}

std::string activations_text(const TrainSetup& setup) {
  const auto* choice = std::ranges::find(kActivations, setup.keep, &ActivationChoice::keep);
  ASSERT(choice != std::end(kActivations), "no policy keeps that");
  return fmt::format("{}{}", choice->name, setup.open.activations ? " (chosen by auto)" : "");
}

std::vector<Placement> place_by_ratio(const ParamTable& table, double ratio) {
  const double wanted = (1 - ratio) * static_cast<double>(table.trained_count());
  double nearest = wanted;  // with no block on the device
  int64_t on_device = 0;
  int blocks = 0;
  for (BlockId block = 0; block < table.block_count(); ++block) {
    on_device += parameters_of(table, block);
    const double distance = std::abs(static_cast<double>(on_device) - wanted);
    if (distance >= nearest) continue;
    nearest = distance;
    blocks = block + 1;
  }
  std::vector<Placement> placement(table.blocks().size(), Placement::host);
  std::fill_n(placement.begin(), blocks, Placement::device);
  return placement;
}

int64_t parameters_on(Placement where, const TrainSetup& setup, const ParamTable& table) {
  int64_t count = 0;
  for (BlockId block = 0; block < table.block_count(); ++block)
    if (setup.placement.at(static_cast<size_t>(block)) == where) count += parameters_of(table, block);
  return count;
}

std::string placement_text(const TrainSetup& setup, const ParamTable& table) {
  const int64_t on_host = parameters_on(Placement::host, setup, table);
  if (on_host == table.trained_count()) return "optimizer on the host";
  if (on_host == 0) return "optimizer on the device";
  const auto first_on_host = std::ranges::find(setup.placement, Placement::host);
  const auto last = static_cast<BlockId>(first_on_host - setup.placement.begin()) - 1;
  std::string blocks = table.block(0).name;
  if (last > 0) blocks += (last > 1 ? " to " : " and ") + table.block(last).name;
  return fmt::format("optimizer of {} on the device, of {:.1f} % of the parameters on the host", blocks,
                     100 * static_cast<double>(on_host) / static_cast<double>(table.trained_count()));
}

void settle(const Machine& machine, const ParamTable& table, TrainSetup& setup) {
  const std::vector<Placement> places = places_of_embedding(setup, table);
  for (const Keep keep : keeps_of(setup))
    for (const Placement embedding : places) {
      setup.keep = keep;
      setup.placement.front() = embedding;
      if (has_room(machine, setup, table)) return;
    }
}

}  // namespace tandem
