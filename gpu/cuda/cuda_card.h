#pragma once
#include <string>
#include <string_view>

namespace tandem::gpu::cuda {

struct CardInfo {
  std::string name, pci_bus_id;
  size_t memory_bytes = 0;
};

/// Whether kernels compiled for these architectures run on a card: "80,90-real" as CMake names them, entries
/// without "-real" being there as PTX too, which later cards compile themselves.
bool runs_on(std::string_view architectures, int major, int minor);

/// Makes card N the calling thread's and starts CUDA on it. Error(usage), one line each with the cure,
/// without a driver, with one that is older than the program's runtime, without that card, with one below
/// compute capability 8.0, or with one that the kernels weren't compiled for.
CardInfo open_card(int card);

/// 90 for 9.0.
int compute_capability(int card);

/// Bytes of the calling thread's card that nobody uses.
size_t free_bytes();

}  // namespace tandem::gpu::cuda
