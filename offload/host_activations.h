#pragma once
// Inputs of layers in pinned memory of the host, on the way there and back by streams of their own.
#include <memory>
#include <vector>

#include "core/device/device.h"
#include "core/model/exchange.h"
#include "core/model/params.h"
#include "offload/setup.h"

namespace tandem {

/// Used by the main thread only. Nothing here waits for a place to be free: whoever sends to it again has
/// waited for what was fetched from it.
class HostActivations : public ActivationStore {
 public:
  /// Takes offloaded_input_bytes(), on the landing_node() of the device.
  HostActivations(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host);

  [[nodiscard]] Fence send(int64_t place, std::string_view name, Tensor x, Stream& stream) override;
  [[nodiscard]] Fence fetch(int64_t place, std::string_view name, Tensor x, Stream& stream) override;
  /// Sent by one step, and fetched again.
  [[nodiscard]] size_t bytes_per_step() const { return memory_.bytes() * groups_; }

 private:
  [[nodiscard]] Tensor at(int64_t place, Tensor x) const;
  const size_t groups_;
  Buffer memory_;
  Pin pin_;
  std::unique_ptr<Stream> d2h_, h2d_;
  std::vector<Fence> landed_;  // [place]
};

}  // namespace tandem
