#include "offload/planes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "cpu_adam/host_reduce.h"
#include "cpu_adam/state_convert.h"
#include "offload/memory_plan.h"

namespace tandem {

namespace {

constexpr int64_t kConverted = int64_t{1} << 18;  // elements of a format's change at once

/// States of n elements in some format, in memory of their own.
class StatePiece {
 public:
  StatePiece(StateFormat format, int64_t n) : format_(format) {
    for (size_t i = 0; i < kStatePlanes; ++i)
      planes_[i].resize(plane_bytes(format, static_cast<StatePlane>(i), n));
  }
  [[nodiscard]] AdamStates states() {
    return {format_, planes_[0], planes_[1], planes_[2], planes_[3], planes_[4]};
  }

 private:
  StateFormat format_;
  std::array<std::vector<std::byte>, kStatePlanes> planes_;
};

void read_moments(PlaneSource& source, const ParamSpec& spec, int64_t first, const AdamStates& into) {
  for (const auto& [plane, bytes] : {std::pair{Plane::exp_avg, into.moment1},
                                     {Plane::exp_avg_sq, into.moment2},
                                     {Plane::exp_avg_scale, into.scale1},
                                     {Plane::exp_avg_sq_scale, into.scale2}})
    if (!bytes.empty()) source.read_moments(plane, spec, first, bytes);
}

}  // namespace

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
    load_master(source, block);
    load_moments(source, block);
  }
}

void PlaneMover::load_master(PlaneSource& source, BlockId block) {
  const Tensor master = states_.block(block).master;
  const bool host = on_host(block);
  const Tensor landing = host ? master : staging_.tensor(DType::f32, {master.numel()});
  std::memset(landing.raw(), 0, landing.bytes());
  const bool there = source.read(Plane::master, block, landing);
  ASSERT(there, "no masters for block {}", block);
  if (!host) upload(master, landing);
}

void PlaneMover::load_moments(PlaneSource& source, BlockId block) {
  const BlockStates& states = states_.block(block);
  if (!on_host(block))  // host memory comes zeroed
    for (const Tensor plane : {states.exp_avg, states.exp_avg_sq}) stream_.fill_zero(plane);
  const std::optional<MomentFormat> moments = source.moments();
  if (!moments) return stream_.record().wait();
  const StateFormat stored{MasterFormat::fp32, *moments}, held = setup_.format(block);
  for (const ParamSpec& spec : table_.of_block(block)) {
    if (spec.frozen) continue;
    if (on_host(block) && stored == held) {
      read_moments(source, spec, 0, states_of(states, held, spec.offset, spec.numel));
      continue;
    }
    // A transposed one is read whole each time.
    const int64_t piece = spec.transposed ? spec.numel : kConverted;
    for (int64_t first = 0; first < spec.numel; first += piece)
      convert_moments(source, stored, spec, first, std::min(piece, spec.numel - first));
  }
}

/// By way of fp32. What is rounded is rounded by random bits that no update draws.
void PlaneMover::convert_moments(PlaneSource& source, StateFormat stored, const ParamSpec& spec,
                                 int64_t first, int64_t count) {
  StatePiece piece(stored, count);
  read_moments(source, spec, first, piece.states());
  std::vector<float> masters(static_cast<size_t>(count)), exp_avg(masters.size()), exp_avg_sq(masters.size());
  decode_states(workers_, piece.states(), {}, {masters, exp_avg, exp_avg_sq});
  const int64_t at = spec.offset + first;
  if (!on_host(spec.block)) return upload_moments(spec.block, at, exp_avg, exp_avg_sq);
  const BlockStates& states = states_.block(spec.block);
  std::copy_n(states.master.data<float>() + at, count, masters.begin());
  const auto parameter = static_cast<uint32_t>(&spec - table_.params().data());
  encode_states(workers_, states_of(states, setup_.format(spec.block), at, count), {},
                {masters, exp_avg, exp_avg_sq}, {{setup_.seed, parameter, UINT32_MAX}, first});
}

void PlaneMover::upload_moments(BlockId block, int64_t first, std::span<const float> exp_avg,
                                std::span<const float> exp_avg_sq) {
  const BlockStates& states = states_.block(block);
  for (const auto& [plane, values] : {std::pair{states.exp_avg, exp_avg}, {states.exp_avg_sq, exp_avg_sq}}) {
    const Tensor staged = staging_.tensor(DType::f32, {static_cast<int64_t>(values.size())});
    std::memcpy(staged.raw(), values.data(), values.size_bytes());
    upload(plane.flat(first, staged.numel()), staged);
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
