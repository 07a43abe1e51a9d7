#pragma once
// The ops of core/device/ops.h by the launches of gpu/kernels/launches.h, in the emulator, at once and in
// plain memory.
#include <memory>
#include <string_view>
#include <vector>

#include "core/device/ops.h"
#include "tests/simt/emulator.h"

namespace tandem::simt {

/// How the emulator runs each launch; see emulator.h.
struct EmulatorSettings {
  uint64_t seed = 0;
  std::optional<Mutant> mutant = std::nullopt;
  Sites* sites = nullptr;
};

/// Ops that have no kernel in gpu/kernels: they are an ASSERT here.
constexpr std::string_view kOpsWithoutKernels[] = {"attention_backward", "attention_forward",
                                                   "linear_backward_input", "linear_backward_weight",
                                                   "linear_forward"};

/// In the namespace of the kernels, since each mutant of them (mutants.cmake) has its own.
namespace simt_emulated {
std::unique_ptr<Ops> make_ops(const EmulatorSettings& settings);
}

}  // namespace tandem::simt
