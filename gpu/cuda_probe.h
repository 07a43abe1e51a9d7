#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace tandem::gpu {

/// A CUDA card as its driver describes it.
struct CudaCard {
  std::string name;
  size_t memory_bytes = 0;
  std::string compute_capability;  ///< "9.0"
  std::string pci_bus_id;          ///< "0000:01:00.0"
};

/// What there is of CUDA here.
struct CudaProbe {
  std::vector<CudaCard> cards;  ///< in the driver's order: cards[N] is "cuda:N"
  std::string driver;           ///< newest CUDA version that the driver runs, "13.0"; empty without a driver
  std::string runtime;  ///< CUDA version that this program was built with; empty if it was built without
  std::string why;      ///< why no card can train; empty if one can
};

/// Looks for the driver and its cards. Their absence is an answer, not an error. Takes no memory on a card.
CudaProbe probe_cuda();

}  // namespace tandem::gpu
