#include "offload/optimizer_states.h"

#include "offload/memory_plan.h"

namespace tandem {

namespace {

/// Cuts one allocation into blocks, front to back.
class Cutter {
 public:
  Cutter(void* begin, DType dtype) : next_(static_cast<std::byte*>(begin)), dtype_(dtype) {}
  Tensor cut(int64_t elements) {
    const Tensor tensor(next_, dtype_, {elements});
    next_ += tensor.bytes();
    return tensor;
  }

 private:
  std::byte* next_;
  DType dtype_;
};

}  // namespace

OptimizerStates::OptimizerStates(const TrainSetup& setup, const ParamTable& table, Device& device,
                                 HostMemory& host)
    : blocks_(static_cast<size_t>(table.block_count())), slots_(static_cast<size_t>(table.block_count())) {
  const PlaneBytes planes = plane_elements(setup, table);
  const auto bytes = [](int64_t elements, DType dtype) {
    return static_cast<size_t>(elements) * size_of(dtype);
  };
  const auto keep = [&](Buffer buffer) { return buffers_.emplace_back(std::move(buffer)).raw(); };
  const auto plane = [&](Placement where, DType dtype, const char* host_scope,
                         const char* device_scope) -> void* {
    const int64_t elements = where == Placement::host ? planes.host_elements : planes.device_elements;
    if (elements == 0) return nullptr;
    return keep(where == Placement::host ? host.allocate(bytes(elements, dtype), host_scope)
                                         : device.allocate(bytes(elements, dtype), device_scope));
  };
  for (const Placement where : {Placement::host, Placement::device}) {
    Cutter master(plane(where, DType::f32, "master", "optimizer"), DType::f32);
    Cutter exp_avg(plane(where, DType::f32, "exp_avg", "optimizer"), DType::f32);
    Cutter exp_avg_sq(plane(where, DType::f32, "exp_avg_sq", "optimizer"), DType::f32);
    std::vector<Cutter> slots;
    for (int i = 0; i < setup.slots(); ++i) {
      void* memory = plane(where, setup.dtype, "slots", "slots");
      if (where == Placement::host && memory != nullptr)
        pins_.push_back(device.pin({static_cast<std::byte*>(memory), buffers_.back().bytes()}));
      slots.emplace_back(memory, setup.dtype);
    }
    for (BlockId id = 0; id < table.block_count(); ++id) {
      const auto i = static_cast<size_t>(id);
      if (setup.placement.at(i) != where) continue;
      const int64_t numel = table.block(id).trained;
      blocks_[i] = {master.cut(numel), exp_avg.cut(numel), exp_avg_sq.cut(numel)};
      for (Cutter& slot : slots) slots_[i].push_back(slot.cut(numel));
    }
  }
}

}  // namespace tandem
