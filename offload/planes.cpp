#include "offload/planes.h"

#include <cstring>

#include "cpu_adam/host_reduce.h"

namespace tandem {

bool FreshPlanes::read(Plane plane, BlockId block, Tensor out) {
  if (plane != Plane::master) return false;
  for (const ParamSpec& spec : table_.of_block(block))
    weights_.read(spec, {out.data<float>() + spec.offset, static_cast<size_t>(spec.numel)});
  return true;
}

PlaneMover::PlaneMover(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host,
                       Workers& workers, const OptimizerStates& states, Stream& stream)
    : setup_(setup),
      table_(table),
      device_(device),
      workers_(workers),
      states_(states),
      stream_(stream),
      staging_(host.allocate(static_cast<size_t>(table.largest_block()) * sizeof(float), "staging")),
      pin_(device.pin({static_cast<std::byte*>(staging_.raw()), staging_.bytes()})) {}

/// Fills host memory in place, device memory by way of the staging buffer.
void PlaneMover::to(Tensor into, Placement where, const std::function<void(Tensor)>& fill) {
  if (where == Placement::host) return fill(into);
  const Tensor staged = staging_.tensor(into.dtype(), {into.numel()});
  std::memset(staged.raw(), 0, staged.bytes());
  fill(staged);
  stream_.copy(into, staged);
  stream_.record().wait();
}

void PlaneMover::load_states(PlaneSource& source) {
  for (BlockId block = 0; block < table_.block_count(); ++block) {
    const BlockStates& states = states_.block(block);
    const Placement where = setup_.placement.at(static_cast<size_t>(block));
    to(states.master, where,
       [&](Tensor out) { ASSERT(source.read(Plane::master, block, out), "no masters for block {}", block); });
    for (const auto& [plane, memory] :
         {std::pair{Plane::exp_avg, states.exp_avg}, {Plane::exp_avg_sq, states.exp_avg_sq}})
      to(memory, where, [&, plane = plane](Tensor out) { source.read(plane, block, out); });
  }
}

bool PlaneMover::load(PlaneSource& source, Plane plane, BlockId block, Tensor into, Placement where) {
  bool there = false;
  to(into, where, [&](Tensor out) { there = source.read(plane, block, out); });
  return there;
}

void PlaneMover::round_master(BlockId block, Tensor into, Placement where) {
  const Tensor master = states_.block(block).master;
  if (setup_.placement.at(static_cast<size_t>(block)) == Placement::host) {
    to(into, where, [&](Tensor out) { round_weights(workers_, out, master); });
    return;
  }
  ASSERT(where == Placement::device, "a device master is rounded on the device");
  device_.ops().round_weights(stream_, into, master);
  stream_.record().wait();
}

void PlaneMover::read(Tensor from, Placement where, Tensor out) {
  ASSERT(from.bytes() == out.bytes(), "{} bytes read as {}", from.bytes(), out.bytes());
  if (where == Placement::host) {
    std::memcpy(out.raw(), from.raw(), out.bytes());
    return;
  }
  const Tensor staged = staging_.tensor(from.dtype(), {from.numel()});
  stream_.copy(staged, from);
  stream_.record().wait();
  std::memcpy(out.raw(), staged.raw(), out.bytes());
}

}  // namespace tandem
