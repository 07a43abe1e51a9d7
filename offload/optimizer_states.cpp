#include "offload/optimizer_states.h"

#include "cpu_adam/host_reduce.h"
#include "offload/memory_plan.h"

namespace tandem {

namespace {

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

OptimizerStates::OptimizerStates(const TrainSetup& setup, const ParamTable& table, Device& device,
                                 HostMemory& host)
    : blocks_(static_cast<size_t>(table.block_count())), slots_(static_cast<size_t>(table.block_count())) {
  const PlaneBytes planes = plane_elements(setup, table);
  const auto keep = [&](Buffer buffer) { return buffers_.emplace_back(std::move(buffer)).raw(); };
  const auto memory = [&](Placement where, int64_t elements, DType dtype, const char* host_scope,
                          const char* device_scope) -> void* {
    const size_t bytes = static_cast<size_t>(elements) * size_of(dtype);
    if (bytes == 0) return nullptr;
    return keep(where == Placement::host ? host.allocate(bytes, host_scope)
                                         : device.allocate(bytes, device_scope));
  };
  for (const Placement where : {Placement::host, Placement::device}) {
    const int64_t elements = where == Placement::host ? planes.host_elements : planes.device_elements;
    const StateFormat format = where == Placement::host ? setup.states : StateFormat{};
    const int64_t groups = format.moments == MomentFormat::int8 ? elements / kStateGroup : 0;
    const int64_t beside = row_of(format.master).beside_weights ? elements : 0;
    const auto cutter = [&](int64_t count, DType dtype, const char* scope) {
      return Cutter(memory(where, count, dtype, scope, "optimizer"), dtype);
    };
    Cutter master = cutter(elements, master_dtype(format.master), "master");
    Cutter upper = cutter(beside, DType::bf16, "master");
    Cutter exp_avg = cutter(elements, moment_dtype(format.moments), "exp_avg");
    Cutter exp_avg_sq = cutter(elements, moment_dtype(format.moments), "exp_avg_sq");
    Cutter scale = cutter(groups, DType::bf16, "exp_avg"),
           scale_sq = cutter(groups, DType::bf16, "exp_avg_sq");
    std::vector<Cutter> slots;
    for (int i = 0; i < setup.slots(); ++i) {
      void* slot = memory(where, elements, setup.dtype, "slots", "slots");
      if (where == Placement::host && slot != nullptr)
        pins_.push_back(device.pin({static_cast<std::byte*>(slot), buffers_.back().bytes()}));
      slots.emplace_back(slot, setup.dtype);
    }
    for (BlockId id = 0; id < table.block_count(); ++id) {
      const auto i = static_cast<size_t>(id);
      if (setup.placement.at(i) != where) continue;
      const int64_t numel = table.block(id).trained;
      blocks_[i] = {master.cut(numel),
                    upper.cut(numel),
                    exp_avg.cut(numel),
                    exp_avg_sq.cut(numel),
                    scale.cut(numel / kStateGroup),
                    scale_sq.cut(numel / kStateGroup)};
      for (Cutter& slot : slots) slots_[i].push_back(slot.cut(numel));
    }
  }
}

}  // namespace tandem
