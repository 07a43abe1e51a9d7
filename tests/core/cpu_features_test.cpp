#include "core/base/cpu_features.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace tandem {
namespace {

using Isas = std::vector<Isa>;

// Bits by number, from the Intel SDM: leaf 1 ecx 12 FMA, 27 OSXSAVE, 28 AVX, 29 F16C; leaf 7 ebx 5 AVX2, 16
// AVX512F, 30 AVX512BW, 31 AVX512VL; XCR0 1 SSE, 2 AVX, 5-7 AVX-512.
CpuidBits full() { return {0x38001000u, 0xC0010020u, 0xE7u}; }

TEST(ConfigIsa, CountsOnlyWhatCpuAndSystemBothGive) {
  EXPECT_EQ(usable_isas(CpuidBits{}), Isas{Isa::scalar});
  EXPECT_EQ(usable_isas(full()), (Isas{Isa::scalar, Isa::avx2, Isa::avx512}));
  for (const int bit : {12, 27, 28, 29}) {
    CpuidBits bits = full();
    bits.leaf1_ecx &= ~(1u << bit);
    EXPECT_EQ(usable_isas(bits), Isas{Isa::scalar}) << "leaf 1 bit " << bit;
  }
  for (const int bit : {16, 30, 31}) {
    CpuidBits bits = full();
    bits.leaf7_ebx &= ~(1u << bit);
    EXPECT_EQ(usable_isas(bits), (Isas{Isa::scalar, Isa::avx2})) << "leaf 7 bit " << bit;
  }
  for (const int bit : {1, 2, 5, 6, 7}) {
    CpuidBits bits = full();
    bits.xcr0 &= ~(1ull << bit);
    EXPECT_EQ(usable_isas(bits), bit <= 2 ? Isas{Isa::scalar} : (Isas{Isa::scalar, Isa::avx2}))
        << "XCR0 bit " << bit;
  }
  CpuidBits no_avx2 = full();
  no_avx2.leaf7_ebx &= ~(1u << 5);
  EXPECT_EQ(usable_isas(no_avx2), Isas{Isa::scalar});
}

TEST(ConfigIsa, AutoTakesTheWidestAndNamesAreObeyed) {
  const Isas usable{Isa::scalar, Isa::avx2};
  EXPECT_EQ(choose_isa("auto", usable), Isa::avx2);
  EXPECT_EQ(choose_isa("scalar", usable), Isa::scalar);
  EXPECT_EQ(choose_isa("avx2", usable), Isa::avx2);
  EXPECT_EQ(choose_isa("auto", {Isa::scalar}), Isa::scalar);
}

TEST(ConfigIsa, AnIsaThatTheCpuLacksIsRefusedByName) {
  for (const char* wanted : {"avx512", "neon", "sse9", ""}) {
    try {
      choose_isa(wanted, {Isa::scalar, Isa::avx2});
      ADD_FAILURE() << wanted << " accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::usage);
      EXPECT_NE(error.message().find(wanted), std::string::npos);
      EXPECT_EQ(error.hint(), "auto, scalar, avx2");
    }
  }
}

TEST(ConfigIsa, ThisMachineHasAtLeastScalar) {
  EXPECT_EQ(usable_isas().front(), Isa::scalar);
  EXPECT_EQ(choose_isa("auto"), usable_isas().back());
}

}  // namespace
}  // namespace tandem
