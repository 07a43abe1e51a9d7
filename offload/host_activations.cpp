#include "offload/host_activations.h"

#include "cpu_adam/numa_memory.h"
#include "offload/memory_plan.h"

namespace tandem {

HostActivations::HostActivations(const TrainSetup& setup, const ParamTable& table, Device& device,
                                 HostMemory& host)
    : groups_(static_cast<size_t>(setup.groups())),
      d2h_(device.stream("d2h_act", Purpose::d2h)),
      h2d_(device.stream("h2d_act", Purpose::h2d)),
      landed_(static_cast<size_t>(
          offloaded_inputs(setup.arch, table, {setup.micro_batch, setup.length, setup.group()}))) {
  const size_t bytes = offloaded_input_bytes(setup, table);
  if (bytes == 0) return;  // one layer and one micro-batch, or only the head is trained
  memory_ = host.allocate_for(bytes, "activations", {{}, landing_node(device.info().pci_bus_id).node});
  pin_ = device.pin({static_cast<std::byte*>(memory_.raw()), bytes});
}

Tensor HostActivations::at(int64_t place, Tensor x) const {
  return memory_.tensor(x.dtype(), {x.numel()}, static_cast<size_t>(place) * x.bytes());
}

Fence HostActivations::send(int64_t place, std::string_view name, Tensor x, Stream& stream) {
  d2h_->range(name);
  d2h_->wait(stream.record());
  d2h_->copy(at(place, x), x.flat());
  return landed_.at(static_cast<size_t>(place)) = d2h_->record();
}

Fence HostActivations::fetch(int64_t place, std::string_view name, Tensor x, Stream& stream) {
  h2d_->range(name);
  h2d_->wait(stream.record());
  h2d_->wait(landed_.at(static_cast<size_t>(place)));
  h2d_->copy(x.flat(), at(place, x));
  return h2d_->record();
}

}  // namespace tandem
