#include "core/math/philox.h"

#include <gtest/gtest.h>

#include <array>

namespace tandem {
namespace {

std::array<uint32_t, 4> words(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  const Philox r = philox(key, counter_low, counter_high);
  return {r.x[0], r.x[1], r.x[2], r.x[3]};
}

// Known answers of the Random123 library (kat_vectors, philox4x32 with 10 rounds); words from low to high.
TEST(NumbersPhilox, GivesTheKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(words(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(~0ull, ~0ull, ~0ull), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(NumbersPhilox, EveryPartOfTheInputCounts) {
  const auto base = words(1, 2, 3);
  EXPECT_NE(words(1 + (1ull << 32), 2, 3), base);
  EXPECT_NE(words(1, 2 + (1ull << 32), 3), base);
  EXPECT_NE(words(1, 2, 3 + (1ull << 32)), base);
}

}  // namespace
}  // namespace tandem
