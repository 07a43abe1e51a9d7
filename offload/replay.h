#pragma once
// What a recorded step would take on a machine: its operations as discrete events, over streams and lanes in
// their orders, fences, the main thread that enqueues them, and shared resources. An operation needs so much
// of each of a few resources (products, the device's memory, the link each way and both ways, the host's
// memory); alone it runs at the rate of the scarcest of them. Those that run at once and together want more
// of a resource than there is run slower by the same factor; but copies go ahead of the CPU in the host's
// memory. Steps follow one another until their distance is steady.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "offload/hardware.h"
#include "offload/step_recording.h"

namespace tandem {

enum class Resource : uint8_t { matrix, device_memory, d2h, h2d, link, dram, launches };
constexpr size_t kResources = 7;
/// "products", "device memory", "link down", "link up", "link both ways", "host memory", "launches".
std::string_view name_of(Resource resource);

struct Replay {
  double step_ms = 0;  ///< from the end of one step's backward to the end of the next one's
  /// Of it, the compute stream idle, by what its next operation waited for: as metrics.jsonl says it.
  double d2h_ms = 0, adam_ms = 0, h2d_ms = 0, other_ms = 0;
  std::array<double, kResources> busy{};  ///< share of the step in which each was in use, by how much
  double adam_bytes = 0;                  ///< that the updates of a step move through the host's memory
  [[nodiscard]] double idle_ms() const { return d2h_ms + adam_ms + h2d_ms + other_ms; }
  /// The resource that is busy for the largest share.
  [[nodiscard]] Resource binding() const;
};

/// recording: of listed operations. dtype: of the products.
Replay replay(const StepRecording& recording, const HardwareProfile& hardware, DType dtype);

}  // namespace tandem
