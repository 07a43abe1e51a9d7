#include "offload/planes.h"

#include <algorithm>
#include <cstring>

#include "cpu_adam/host_reduce.h"
#include "offload/memory_plan.h"

namespace tandem {

bool FreshPlanes::read(Plane plane, BlockId block, Tensor out) {
  if (plane != Plane::master) return false;
  for (const ParamSpec& spec : table_.of_block(block))
    if (!spec.frozen)
      weights_.read(spec, 0, {out.data<float>() + spec.offset, static_cast<size_t>(spec.numel)});
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
      staging_(host.allocate(staging_bytes(setup, table), "staging")),
      pin_(device.pin({static_cast<std::byte*>(staging_.raw()), staging_.bytes()})) {}

/// Host memory may be written again when this returns.
void PlaneMover::upload(Tensor into, Tensor staged) {
  stream_.copy(into, staged);
  stream_.record().wait();
}

void PlaneMover::load_states(PlaneSource& source) {
  for (BlockId block = 0; block < table_.block_count(); ++block) {
    if (table_.block(block).trained == 0) continue;
    const BlockStates& states = states_.block(block);
    const bool host = on_host(block);
    const auto load = [&](Plane plane, Tensor into) {
      const Tensor landing = host ? into : staging_.tensor(DType::f32, {into.numel()});
      std::memset(landing.raw(), 0, landing.bytes());
      const bool there = source.read(plane, block, landing);
      ASSERT(there || plane != Plane::master, "no masters for block {}", block);
      if (!host) upload(into, landing);
    };
    load(Plane::master, states.master);
    load(Plane::exp_avg, states.exp_avg);
    load(Plane::exp_avg_sq, states.exp_avg_sq);
  }
}

void PlaneMover::load_frozen(PlaneSource& source, BlockId block, Tensor weights) {
  const int64_t piece = frozen_piece(table_), trained = table_.block(block).trained,
                frozen = weights.numel() - trained;
  if (frozen > 0) stream_.fill_zero(weights.flat(trained, frozen));  // the padding
  for (const ParamSpec& spec : table_.of_block(block))
    for (int64_t first = 0; spec.frozen && first < spec.numel; first += piece) {
      const int64_t count = std::min(piece, spec.numel - first);
      const Tensor values = staging_.tensor(DType::f32, {count}),
                   rounded = staging_.tensor(weights.dtype(), {count}, values.bytes());
      source.read_frozen(spec, first, {values.data<float>(), static_cast<size_t>(count)});
      round_weights(workers_, rounded, values);
      upload(weights.flat(spec.offset + first, count), rounded);
    }
}

bool PlaneMover::load(PlaneSource& source, Plane plane, BlockId block, Tensor into, Placement where) {
  // Nothing waits in a slot yet, and on the host it has just the size.
  const Tensor landing = where == Placement::host ? into
                         : on_host(block)         ? states_.slots().at(static_cast<size_t>(block)).front()
                                                  : staging_.tensor(into.dtype(), {into.numel()});
  std::memset(landing.raw(), 0, landing.bytes());
  const bool there = source.read(plane, block, landing);
  if (there && where == Placement::device) upload(into, landing);
  return there;
}

void PlaneMover::round_master(BlockId block, Tensor into, Placement where) {
  const Tensor master = states_.block(block).master;
  if (!on_host(block)) {
    ASSERT(where == Placement::device, "a device master is rounded on the device");
    device_.ops().round_weights(stream_, into, master);
    return stream_.record().wait();
  }
  if (where == Placement::host) return round_weights(workers_, into, master);
  const auto piece = static_cast<int64_t>(staging_.bytes() / size_of(into.dtype()));
  for (int64_t first = 0; first < into.numel(); first += piece) {
    const int64_t count = std::min(piece, into.numel() - first);
    const Tensor staged = staging_.tensor(into.dtype(), {count});
    round_weights(workers_, staged, master.flat(first, count));
    upload(into.flat(first, count), staged);
  }
}

void PlaneMover::read(Tensor from, Placement where, Tensor out) {
  ASSERT(from.bytes() == out.bytes(), "{} bytes read as {}", from.bytes(), out.bytes());
  if (where == Placement::host) {
    std::memcpy(out.raw(), from.raw(), out.bytes());
    return;
  }
  const auto piece = static_cast<int64_t>(staging_.bytes() / size_of(from.dtype()));
  for (int64_t first = 0; first < from.numel(); first += piece) {
    const int64_t count = std::min(piece, from.numel() - first);
    const Tensor staged = staging_.tensor(from.dtype(), {count}), part = out.flat(first, count);
    stream_.copy(staged, from.flat(first, count));
    stream_.record().wait();
    std::memcpy(part.raw(), staged.raw(), part.bytes());
  }
}

}  // namespace tandem
