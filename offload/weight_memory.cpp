#include "offload/weight_memory.h"

namespace tandem {

namespace {

/// So many elements of each block, one block after the other in one memory; empty where there are none.
template <class Elements>
std::vector<Tensor> cut_blocks(Tensor memory, const ParamTable& table, Elements elements) {
  std::vector<Tensor> blocks;
  int64_t begin = 0;
  for (BlockId block = 0; block < table.block_count(); ++block) {
    const int64_t count = elements(block);
    blocks.push_back(count > 0 ? memory.flat(begin, count) : Tensor{});
    begin += count;
  }
  return blocks;
}

}  // namespace

WeightMemory::WeightMemory(const TrainSetup& setup, const ParamTable& table, Device& device,
                           HostMemory& host) {
  const WeightPlan plan = plan_weights(setup, table);
  const size_t element = size_of(setup.dtype);
  device_ = device.allocate(static_cast<size_t>(plan.device_elements()) * element, "weights");
  const Tensor all = device_.tensor(setup.dtype, {plan.device_elements()});
  resident_ = cut_blocks(all.flat(0, plan.resident), table,
                         [&](BlockId b) { return setup.streams(b) ? 0 : table.block(b).numel; });
  window_ = all.flat(plan.resident, all.numel() - plan.resident);
  Tensor frozen;
  if (plan.frozen > 0) {
    host_ = host.allocate(static_cast<size_t>(plan.frozen) * element, "weights");
    pin_ = device.pin({static_cast<std::byte*>(host_.raw()), host_.bytes()});
    frozen = host_.tensor(setup.dtype, {plan.frozen});
  }
  frozen_ = cut_blocks(frozen, table, [&](BlockId b) {
    return setup.streams(b) ? table.block(b).numel - table.block(b).trained : 0;
  });
}

}  // namespace tandem
