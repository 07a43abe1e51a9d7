#pragma once
// Text of an ISA file: the vector of floats, and how tails meet it. Everything has internal linkage inside
// the ISA's namespace: two ISA files share no function.
#include <cstdint>

#include "gpu/host/kernels/row_kernels.h"

namespace tandem::gpu::TANDEM_ISA {
namespace {

using Arch = TANDEM_ISA_ARCH;
using Floats = xsimd::batch<float, Arch>;
constexpr int64_t kLanes = static_cast<int64_t>(Floats::size);
using Doubles = xsimd::batch<double, Arch>;  // half a vector of floats, widened
constexpr int64_t kDoubles = static_cast<int64_t>(Doubles::size);
static_assert(kLanes == 2 * kDoubles);

inline Floats load(const float* from) { return Floats::load_unaligned(from); }
inline void store(float* to, Floats x) { x.store_unaligned(to); }

/// How many lanes of a vector are in use: all, or the first few (a row's last vector).
struct Whole {};
struct Part {
  int64_t count;
};

}  // namespace
}  // namespace tandem::gpu::TANDEM_ISA
