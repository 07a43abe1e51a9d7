#pragma once
// A machine as a plan sees it: figures out of a profile, each with its source.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "core/base/dtype.h"

namespace tandem {

/// Rates are what real work reaches, not peaks. Rates in 1e9 bytes per second, products in 1e12 FLOP per
/// second.
struct HardwareProfile {
  std::string name;
  double device_memory = 0, host_memory = 0;         ///< bytes
  double matrix_16bit = 0, matrix_fp32 = 0;          ///< of large products with fp32 accumulation
  double device_gb_s = 0;                            ///< the device's memory, reads and writes together
  double d2h_gb_s = 0, h2d_gb_s = 0, both_gb_s = 0;  ///< pinned copies: each way alone, and both together
  double dram_gb_s = 0;                              ///< the host's memory, reads and writes together
  double launch_us = 0;                              ///< that the CPU needs to enqueue an operation
  double shortest_kernel_us = 0;                     ///< of a kernel or copy, however small
  [[nodiscard]] double matrix(DType dtype) const { return dtype == DType::f32 ? matrix_fp32 : matrix_16bit; }
};

/// A profile of configs/hardware, which the program carries.
struct BuiltInProfile {
  std::string_view name;  ///< of its file, without .json
  std::string_view text;
};
std::span<const BuiltInProfile> built_in_profiles();

/// "rtx4090-desktop", or the path of a file of the same form (it ends in ".json"). Error(usage) with place
/// and nearest name for one that is not there, a figure that is missing, absurd or without a source, and a
/// key that nobody knows.
HardwareProfile load_hardware(const std::string& name_or_path);
/// The same from a text.
HardwareProfile parse_hardware(std::string_view text, const std::string& file);

}  // namespace tandem
