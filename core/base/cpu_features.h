#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// The instruction sets that the CPU Adam has kernels for. All give the same bits.
enum class Isa : uint8_t {
  scalar,  ///< no assumption at all
  avx2,    ///< x86-64: AVX2, FMA and F16C
  avx512,  ///< x86-64: AVX-512 F, BW and VL, beside all of avx2
  neon,    ///< aarch64
};

/// "scalar", "avx2", "avx512", "neon": the values of device.isa, beside "auto".
std::string_view name_of(Isa isa);

/// What CPUID and XGETBV answer on x86-64; zeros on another architecture.
struct CpuidBits {
  uint32_t leaf1_ecx = 0, leaf7_ebx = 0;
  uint64_t xcr0 = 0;  ///< register states that the operating system saves; 0 where it hasn't enabled XSAVE
};
CpuidBits read_cpuid();

/// The usable ones, slowest first; scalar is always there. An ISA counts only if the CPU has all of its
/// instructions and the operating system saves its registers.
std::vector<Isa> usable_isas(const CpuidBits& bits);
std::vector<Isa> usable_isas();

/// `wanted` is the value of device.isa. "auto" is the last of `usable`. Error(usage), naming what is usable,
/// for one that this CPU lacks and for an unknown name.
Isa choose_isa(std::string_view wanted, const std::vector<Isa>& usable);
Isa choose_isa(std::string_view wanted);

}  // namespace tandem
