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

constexpr int64_t kConverted = int64_t{1} << 18;  // elements whose format changes at once

/// States of n elements in some format, in memory of their own.
class StatePiece {
 public:
  StatePiece(StateFormat format, int64_t n)
      : format_(format), upper_(row_of(format.master).beside_weights ? static_cast<size_t>(n) : 0) {
    for (size_t i = 0; i < kStatePlanes; ++i)
      planes_[i].resize(plane_bytes(format, static_cast<StatePlane>(i), n));
  }
  [[nodiscard]] AdamStates states() {
    return {format_, planes_[0], planes_[1], planes_[2], planes_[3], planes_[4]};
  }
  [[nodiscard]] Tensor upper() {
    if (upper_.empty()) return {};
    return {upper_.data(), DType::bf16, {static_cast<int64_t>(upper_.size())}};
  }

 private:
  StateFormat format_;
  std::vector<bf16> upper_;
  std::array<std::vector<std::byte>, kStatePlanes> planes_;
};

/// Whatever the source has of a range of a parameter, as it has it.
void read_states(PlaneSource& source, const ParamSpec& spec, int64_t first, const AdamStates& into,
                 Tensor upper) {
  const auto read = [&](Plane plane, std::span<std::byte> bytes) {
    if (!bytes.empty()) source.read_state(plane, spec, first, bytes);
  };
  read(Plane::master, into.master);
  read(Plane::upper, {static_cast<std::byte*>(upper.raw()), upper.bytes()});
  if (!source.has_moments()) return;
  read(Plane::exp_avg, into.moment1);
  read(Plane::exp_avg_sq, into.moment2);
  read(Plane::exp_avg_scale, into.scale1);
  read(Plane::exp_avg_sq_scale, into.scale2);
}

}  // namespace

void FreshPlanes::read_state(Plane plane, const ParamSpec& spec, int64_t first, std::span<std::byte> out) {
  ASSERT(plane == Plane::master, "a fresh model has masters only");
  weights_.read(spec, first, {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
}

PlaneMover::PlaneMover(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host,
                       Workers& workers, const OptimizerStates& states, Slots& slots, int64_t version,
                       Stream& stream)
    : setup_(setup),
      table_(table),
      device_(device),
      workers_(workers),
      states_(states),
      slots_(slots),
      version_(version),
      stream_(stream),
      staging_(host.allocate(staging_bytes(setup, table), "staging")),
      pin_(device.pin({static_cast<std::byte*>(staging_.raw()), staging_.bytes()})) {
  stream_.range("planes");
}

/// Host memory may be written again when this returns.
void PlaneMover::upload(Tensor into, Tensor staged) {
  stream_.copy(into, staged);
  stream_.record().wait();
}

void PlaneMover::load_states(PlaneSource& source) {
  for (BlockId block = 0; block < table_.block_count(); ++block) {
    if (table_.block(block).trained == 0) continue;
    if (!on_host(block)) {  // host memory comes zeroed
      for (const Tensor plane : states_.block(block).planes()) stream_.fill_zero(plane);
      stream_.record().wait();
    }
    for (const ParamSpec& spec : table_.of_block(block))
      if (!spec.frozen) load_parameter(source, spec);
  }
}

void PlaneMover::load_parameter(PlaneSource& source, const ParamSpec& spec) {
  const StateFormat held = setup_.format(spec.block);
  if (on_host(spec.block) && source.format(spec) == held) {
    const BlockStates states = this->states(spec.block);
    return read_states(source, spec, 0, states_of(states, held, spec.offset, spec.numel),
                       upper_of(states, spec.offset, spec.numel));
  }
  // A transposed one is read whole each time.
  const int64_t piece = spec.transposed ? spec.numel : kConverted;
  for (int64_t first = 0; first < spec.numel; first += piece)
    convert(source, spec, first, std::min(piece, spec.numel - first));
}

/// By way of fp32. What is rounded is rounded by random bits that no update draws.
void PlaneMover::convert(PlaneSource& source, const ParamSpec& spec, int64_t first, int64_t count) {
  StatePiece piece(source.format(spec), count);
  read_states(source, spec, first, piece.states(), piece.upper());
  std::vector<float> master(static_cast<size_t>(count)), exp_avg(master.size()), exp_avg_sq(master.size());
  decode_states(workers_, piece.states(), piece.upper(), {master, exp_avg, exp_avg_sq});
  const BlockStates states = this->states(spec.block);
  const int64_t at = spec.offset + first;
  if (on_host(spec.block)) {
    return encode_states(workers_, states_of(states, setup_.format(spec.block), at, count),
                         upper_of(states, at, count), {master, exp_avg, exp_avg_sq},
                         {{setup_.seed, table_.index(spec), UINT32_MAX}, first});
  }
  upload_floats(states.master, at, master);
  if (!source.has_moments()) return;
  upload_floats(states.exp_avg, at, exp_avg);
  upload_floats(states.exp_avg_sq, at, exp_avg_sq);
}

/// As much at a time as the staging holds.
void PlaneMover::upload_floats(Tensor plane, int64_t first, std::span<const float> values) {
  const size_t most = staging_.bytes() / sizeof(float);
  for (size_t done = 0; done < values.size(); done += most) {
    const auto part = values.subspan(done, std::min(most, values.size() - done));
    const Tensor staged = staging_.tensor(DType::f32, {static_cast<int64_t>(part.size())});
    std::memcpy(staged.raw(), part.data(), part.size_bytes());
    upload(plane.flat(first + static_cast<int64_t>(done), staged.numel()), staged);
  }
}

void PlaneMover::load_frozen(PlaneSource& source, BlockId block, Tensor into, Placement where) {
  const int64_t piece = frozen_piece(table_), trained = table_.block(block).trained;
  if (where == Placement::device && into.numel() > 0)
    stream_.fill_zero(into);  // the padding; host memory is zero
  for (const ParamSpec& spec : table_.of_block(block))
    for (int64_t first = 0; spec.frozen && first < spec.numel; first += piece) {
      const int64_t count = std::min(piece, spec.numel - first);
      const Tensor values = staging_.tensor(DType::f32, {count}),
                   rounded = staging_.tensor(into.dtype(), {count}, values.bytes()),
                   part = into.flat(spec.offset - trained + first, count);
      source.read_frozen(spec, first, {values.data<float>(), static_cast<size_t>(count)});
      round_weights(workers_, setup_.isa, where == Placement::host ? part : rounded, values);
      if (where == Placement::device) upload(part, rounded);
    }
}

bool PlaneMover::load(PlaneSource& source, Plane plane, BlockId block, Tensor into, Placement where) {
  // Nothing waits in a slot yet, and on the host it has just the size.
  const Tensor landing = where == Placement::host ? into
                         : on_host(block)         ? states_.slots().at(static_cast<size_t>(block)).back()
                                                  : staging_.tensor(into.dtype(), {into.numel()});
  std::memset(landing.raw(), 0, landing.bytes());
  const bool there = source.read(plane, block, landing);
  if (there && where == Placement::device) upload(into, landing);
  return there;
}

void PlaneMover::round_master(BlockId block, Tensor into, Placement where) {
  const BlockStates states = this->states(block);
  if (!on_host(block)) {
    ASSERT(where == Placement::device, "a device master is rounded on the device");
    device_.ops().round_weights(stream_, into, states.master);
    return stream_.record().wait();
  }
  if (where == Placement::host) return rounded_masters(workers_, setup_.isa, states, 0, into);
  const auto piece = static_cast<int64_t>(staging_.bytes() / size_of(into.dtype()));
  for (int64_t first = 0; first < into.numel(); first += piece) {
    const Tensor staged = staging_.tensor(into.dtype(), {std::min(piece, into.numel() - first)});
    rounded_masters(workers_, setup_.isa, states, first, staged);
    upload(into.flat(first, staged.numel()), staged);
  }
}

void PlaneMover::read_rounded(BlockId block, int64_t first, Tensor out) {
  const BlockStates states = this->states(block);
  if (on_host(block)) return rounded_masters(workers_, setup_.isa, states, first, out);
  std::vector<float> landing(static_cast<size_t>(std::min(kConverted, out.numel())));
  for (int64_t done = 0; done < out.numel(); done += kConverted) {
    const int64_t count = std::min(kConverted, out.numel() - done);
    const Tensor masters(landing.data(), DType::f32, {count});
    read(states.master.flat(first + done, count), Placement::device, masters);
    round_weights(workers_, setup_.isa, out.flat(done, count), masters);
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
