#pragma once
// Kernels that nvcc built run as their twins in the emulator: gpu/kernels compiled by g++, found by the name
// under which nvcc's code registers them.
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::cuda_fake {

/// From now on launches on the fake runtime run in the emulator. What it finds there (races, accesses out of
/// bounds, ...) is a fault. Blocks and threads take turns as the seed says.
void run_kernels_in_the_emulator(uint64_t seed);

/// The mangled names of the kernels that have a twin, as nvcc registers them.
std::vector<std::string> kernels_with_twins();
/// Those that nvcc's code has registered.
std::vector<std::string> registered_kernels();

}  // namespace tandem::cuda_fake
