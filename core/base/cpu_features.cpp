#include "core/base/cpu_features.h"

#include <algorithm>

#include "core/base/error.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tandem {

namespace {

// Intel SDM volume 2, CPUID; volume 1, 13.3 (XCR0).
constexpr uint32_t kFma = 1u << 12, kOsxsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;  // leaf 1, ecx
constexpr uint32_t kAvx2 = 1u << 5, kAvx512f = 1u << 16, kAvx512bw = 1u << 30,
                   kAvx512vl = 1u << 31;               // leaf 7, ebx
constexpr uint64_t kYmmState = 0x6, kZmmState = 0xE0;  // XMM and YMM; opmask and both halves of ZMM

template <class Bits>
bool has_all(Bits bits, Bits wanted) {
  return (bits & wanted) == wanted;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::neon:
      return "neon";
  }
  return "?";
}

CpuidBits read_cpuid() {
  CpuidBits bits;
#if defined(__x86_64__)
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) bits.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) bits.leaf7_ebx = ebx;
  if (has_all(bits.leaf1_ecx, kOsxsave)) {
    uint32_t low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    bits.xcr0 = static_cast<uint64_t>(high) << 32 | low;
  }
#endif
  return bits;
}

std::vector<Isa> usable_isas(const CpuidBits& bits) {
  std::vector<Isa> usable{Isa::scalar};
  const bool avx2 = has_all(bits.leaf1_ecx, kOsxsave | kAvx | kFma | kF16c) &&
                    has_all(bits.leaf7_ebx, kAvx2) && has_all(bits.xcr0, kYmmState);
  if (avx2) usable.push_back(Isa::avx2);
  if (avx2 && has_all(bits.leaf7_ebx, kAvx512f | kAvx512bw | kAvx512vl) && has_all(bits.xcr0, kZmmState))
    usable.push_back(Isa::avx512);
  return usable;
}

std::vector<Isa> usable_isas() {
#if defined(__aarch64__)
  return {Isa::scalar, Isa::neon};  // NEON is part of the architecture
#else
  return usable_isas(read_cpuid());
#endif
}

Isa choose_isa(std::string_view wanted, const std::vector<Isa>& usable) {
  ASSERT(!usable.empty(), "no usable ISA, not even scalar");
  if (wanted == "auto") return usable.back();
  const auto found =
      std::find_if(usable.begin(), usable.end(), [&](Isa isa) { return name_of(isa) == wanted; });
  if (found != usable.end()) return *found;
  std::string names = "auto";
  for (const Isa isa : usable) names += fmt::format(", {}", name_of(isa));
  throw Error(Status::usage, fmt::format("device.isa \"{}\": this CPU can't run it", printable(wanted)),
              "device.isa", names);
}

Isa choose_isa(std::string_view wanted) { return choose_isa(wanted, usable_isas()); }

}  // namespace tandem
