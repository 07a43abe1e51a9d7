#pragma once
// The ops of core/device/ops.h by the launches of gpu/kernels/launches.h, in the emulator, at once and in
// plain memory.
#include <memory>
#include <span>
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
std::span<const std::string_view> ops_without_kernels();

std::unique_ptr<Ops> make_emulated_ops(const EmulatorSettings& settings = {});

}  // namespace tandem::simt
