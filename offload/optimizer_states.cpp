#include "offload/optimizer_states.h"

#include "cpu_adam/host_reduce.h"
#include "cpu_adam/numa_memory.h"
#include "offload/memory_plan.h"

namespace tandem {

namespace {

constexpr const char* kSlots = "slots";  // the scope, in either memory

/// Cuts one allocation into blocks, front to back. Without memory all of its tensors are empty.
class Cutter {
 public:
  Cutter(void* begin, DType dtype) : next_(static_cast<std::byte*>(begin)), dtype_(dtype) {}
  Tensor cut(int64_t elements) {
    if (next_ == nullptr) return {};
    const Tensor tensor(next_, dtype_, {elements});
    next_ += tensor.bytes();
    return tensor;
  }

 private:
  std::byte* next_;
  DType dtype_;
};

/// The passes over all blocks on the host, by elements of planes that hold these blocks one after the other.
std::vector<AdamPass> host_passes(const TrainSetup& setup, const ParamTable& table) {
  std::vector<AdamPass> all;
  int64_t begin = 0;
  for (BlockId id = 0; id < table.block_count(); ++id) {
    if (setup.placement.at(static_cast<size_t>(id)) != Placement::host) continue;
    for (AdamPass pass : adam_passes(table, id, setup.states)) {
      pass.first += begin;
      all.push_back(pass);
    }
    begin += table.block(id).trained;
  }
  return all;
}

size_t bytes_of(const PlaneShape& shape, int64_t n) {
  return shape.bytes * static_cast<size_t>((n + shape.elements - 1) / shape.elements);
}

/// The passes in bytes of a plane of such a shape.
std::vector<StaticRange> ranges_in(const PlaneShape& shape, const std::vector<AdamPass>& passes) {
  std::vector<StaticRange> ranges;
  for (const AdamPass& pass : passes)
    ranges.push_back({bytes_of(shape, pass.first), bytes_of(shape, pass.count), bytes_of(shape, kAdamGrain)});
  return ranges;
}

/// The plane's bytes of elements [first, first + n) of its block.
std::span<std::byte> part(const Tensor& plane, StateFormat format, StatePlane kind, int64_t first,
                          int64_t n) {
  if (plane.empty()) return {};
  return {plane.bytes_at(plane_bytes(format, kind, first)), plane_bytes(format, kind, n)};
}

}  // namespace

DType master_dtype(MasterFormat format) {
  switch (format) {
    case MasterFormat::fp32:
      return DType::f32;
    case MasterFormat::split:
      return DType::bf16;
    case MasterFormat::ulp8:
      return DType::u8;
  }
  return DType::f32;
}

DType moment_dtype(MomentFormat format) {
  switch (format) {
    case MomentFormat::fp32:
      return DType::f32;
    case MomentFormat::bf16:
      return DType::bf16;
    case MomentFormat::int8:
      return DType::u8;
  }
  return DType::f32;
}

std::vector<Tensor> BlockStates::planes() const {
  std::vector<Tensor> all{master, upper, exp_avg, exp_avg_sq, exp_avg_scale, exp_avg_sq_scale};
  std::erase_if(all, [](const Tensor& plane) { return plane.empty(); });
  return all;
}

void rounded_masters(Workers& workers, Isa isa, const BlockStates& states, int64_t first, Tensor out) {
  if (states.upper.empty()) return round_weights(workers, isa, out, states.master.flat(first, out.numel()));
  ASSERT(out.dtype() == DType::bf16, "weights of {} beside bf16 masters", name_of(out.dtype()));
  copy_plane(workers, out, states.upper.flat(first, out.numel()));
}

AdamStates states_of(const BlockStates& block, StateFormat format, int64_t first, int64_t n) {
  const auto of = [&](const Tensor& plane, StatePlane kind) { return part(plane, format, kind, first, n); };
  return {format,
          of(block.master, StatePlane::master),
          of(block.exp_avg, StatePlane::moment1),
          of(block.exp_avg_sq, StatePlane::moment2),
          of(block.exp_avg_scale, StatePlane::scale1),
          of(block.exp_avg_sq_scale, StatePlane::scale2)};
}

Tensor upper_of(const BlockStates& block, int64_t first, int64_t n) {
  return block.upper.empty() ? Tensor{} : block.upper.flat(first, n);
}

std::vector<AdamPass> adam_passes(const ParamTable& table, BlockId block, StateFormat format) {
  std::vector<AdamPass> passes;
  if (format == StateFormat{}) {
    for (const DecayRange& range : table.decay_ranges(block))
      passes.push_back({range.begin, range.count, range.decay});
    return passes;
  }
  for (const ParamSpec& spec : table.of_block(block))
    if (!spec.frozen) passes.push_back({spec.offset, spec.numel, spec.decay, table.index(spec)});
  return passes;
}

OptimizerStates::OptimizerStates(const TrainSetup& setup, const ParamTable& table, Device& device,
                                 HostMemory& host)
    : blocks_(static_cast<size_t>(table.block_count())),
      slots_(static_cast<size_t>(table.block_count())),
      upper_in_slots_(static_cast<size_t>(table.block_count())) {
  const PlaneBytes planes = plane_elements(setup, table);
  const std::vector<AdamPass> passes = host_passes(setup, table);
  const std::optional<int> landing = landing_node(device.info().pci_bus_id).node;
  cut(setup, table, Placement::host, [&](const PlaneShape& shape, const char* scope) -> void* {
    const size_t bytes = bytes_of(shape, planes.host_elements);
    if (bytes == 0) return nullptr;
    const bool slot = std::string_view(scope) == kSlots;
    const Buffer& buffer = buffers_.emplace_back(
        host.allocate_for(bytes, scope, {ranges_in(shape, passes), slot ? landing : std::nullopt}));
    if (slot) pins_.push_back(device.pin({static_cast<std::byte*>(buffer.raw()), bytes}));
    return buffer.raw();
  });
  cut(setup, table, Placement::device, [&](const PlaneShape& shape, const char* scope) -> void* {
    const size_t bytes = bytes_of(shape, planes.device_elements);
    if (bytes == 0) return nullptr;
    const bool slot = std::string_view(scope) == kSlots;
    return buffers_.emplace_back(device.allocate(bytes, slot ? kSlots : "optimizer")).raw();
  });
}

BlockStates OptimizerStates::at(BlockId id, const Slots& slots, int64_t version) const {
  BlockStates states = block(id);
  if (upper_in_slot(id)) states.upper = slots.weights(id, version);
  return states;
}

std::vector<int> OptimizerStates::slot_readers() const {
  std::vector<int> readers;
  for (const bool upper : upper_in_slots_) readers.push_back(upper ? 2 : 1);
  return readers;
}

void OptimizerStates::cut(const TrainSetup& setup, const ParamTable& table, Placement where,
                          const Allocator& allocate) {
  const StateFormat format = where == Placement::host ? setup.states : StateFormat{};
  const auto plane = [&](const PlaneShape& shape, DType dtype, const char* scope) {
    return Cutter(allocate(shape, scope), dtype);
  };
  const PlaneShape moment = shape_of(format, StatePlane::moment1),
                   scales = shape_of(format, StatePlane::scale1);
  Cutter master = plane(shape_of(format, StatePlane::master), master_dtype(format.master), "master");
  Cutter upper = plane({where == Placement::host ? setup.upper_bytes() : 0, 1}, DType::bf16, "master");
  Cutter exp_avg = plane(moment, moment_dtype(format.moments), "exp_avg");
  Cutter exp_avg_sq = plane(moment, moment_dtype(format.moments), "exp_avg_sq");
  Cutter scale = plane(scales, DType::bf16, "exp_avg");
  Cutter scale_sq = plane(scales, DType::bf16, "exp_avg_sq");
  std::vector<Cutter> slots;
  for (int i = 0; i < setup.slots(); ++i)
    slots.push_back(plane({size_of(setup.dtype), 1}, setup.dtype, kSlots));
  for (BlockId id = 0; id < table.block_count(); ++id) {
    const auto i = static_cast<size_t>(id);
    if (setup.placement.at(i) != where) continue;
    const int64_t numel = table.block(id).trained;
    upper_in_slots_[i] = where == Placement::host && setup.upper_in_slots() && numel > 0;
    blocks_[i] = {master.cut(numel),
                  upper.cut(numel),
                  exp_avg.cut(numel),
                  exp_avg_sq.cut(numel),
                  scale.cut(numel / kStateGroup),
                  scale_sq.cut(numel / kStateGroup)};
    for (Cutter& slot : slots) slots_[i].push_back(slot.cut(numel));
  }
}

}  // namespace tandem
