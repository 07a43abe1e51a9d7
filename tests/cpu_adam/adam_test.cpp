#include "cpu_adam/adam.h"

#include <gtest/gtest.h>

#include "adam_cases.h"

namespace tandem {
namespace {

/// The case's own bits: `planes` after one pass on `isa` must be those of the plain loop, guards included.
void expect_reference_bits(Workers& workers, Isa isa, const AdamCase& c, int64_t n, int64_t shift,
                           bool in_place) {
  const AdamScalars scalars = test_scalars();
  const AdamPlace place = test_place(64 * 3);
  Planes wanted(n, shift, c);
  fill(wanted);
  Planes got = wanted;
  reference(wanted, c, scalars, in_place, place);
  adam(workers, isa, got.spans(in_place), c.decay, scalars, c.prediction, place);
  EXPECT_TRUE(same_bits(wanted, got)) << name_of(isa) << ", " << label(c) << ", n " << n << ", shift "
                                      << shift << (in_place ? ", in place, " : ", ") << workers.describe();
}

TEST(IdentityAdam, EveryIsaTypeDecayTailAndAlignmentGivesTheFormulasBits) {
  const auto workers = make_workers(PoolKind::plain, 1);
  for (const Isa isa : usable_isas())
    for (const AdamCase& c : all_adam_cases())
      for (const int64_t n :
           {0, 1, 7, 8, 9, 15, 16, 17, 22, 31, 32, 33, 55, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025})
        for (const int64_t shift : {0, 1, 3}) expect_reference_bits(*workers, isa, c, n, shift, shift == 1);
}

TEST(IdentityAdam, AMillionElementsGiveTheFormulasBitsInEveryFormatAndType) {
  const auto workers = make_workers(usual_pool(), 2);
  const auto expect = [&](const AdamCase& c) {
    expect_reference_bits(*workers, usable_isas().back(), c, 1048576, 0, false);
  };
  for (const StateFormat format : all_state_formats())
    expect({DType::bf16, DType::bf16, Decay::decoupled, 1.0f, format});
  for (const DType type : {DType::f16, DType::f32}) expect({type, type, Decay::decoupled, 1.0f});
}

TEST(IdentityAdam, RandomBitsDependOnSeedParameterElementAndUpdate) {
  const auto workers = make_workers(PoolKind::plain, 1);
  for (const StateFormat format : all_state_formats()) {
    const AdamCase c{DType::bf16, DType::bf16, Decay::decoupled, 0.0f, format};
    Planes start(256, 0, c);
    fill(start);
    const auto pass = [&](const AdamPlace& place) {
      Planes got = start;
      adam(*workers, Isa::scalar, got.spans(true), c.decay, test_scalars(), 0.0f, place);
      return got;
    };
    const Planes base = pass({{1, 2, 3}, 64});
    EXPECT_TRUE(same_bits(base, pass({{1, 2, 3}, 64})));
    for (const AdamPlace& other : {AdamPlace{{9, 2, 3}, 64}, AdamPlace{{1, 9, 3}, 64},
                                   AdamPlace{{1, 2, 9}, 64}, AdamPlace{{1, 2, 3}, 128}})
      EXPECT_EQ(same_bits(base, pass(other)), !stochastic(format)) << label(c);
  }
}

TEST(IdentityAdam, NoticesOneWrongBit) {  // the comparison above has teeth
  Planes a(65, 1, {}), b(65, 1, {});
  fill(a);
  fill(b);
  EXPECT_TRUE(same_bits(a, b));
  *b.at(b.master, 64) = std::nextafter(*b.at(b.master, 64), 2.0f);  // the last element
  EXPECT_FALSE(same_bits(a, b));
}

TEST(IdentityAdam, AZeroPredictionPublishesTheMasterItself) {
  const auto workers = make_workers(PoolKind::plain, 1);
  for (const Isa isa : usable_isas()) {
    Planes planes(16, 0, {});
    for (int64_t i = 0; i < 16; ++i) {
      *planes.at(planes.master, i) = -0.0f;
      *planes.at(planes.moment1, i) = *planes.at(planes.moment2, i) = 0.0f;
      put(planes.grad_at(i), DType::f32, 0.0f);
    }
    adam(*workers, isa, planes.spans(false), Decay::none, test_scalars(), 0.0f);
    // -0 stays -0; -0 + 0 * (p - before) would be 0.
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(*planes.at(planes.master, i)), 0x80000000u);
      EXPECT_EQ(std::bit_cast<uint32_t>(get(planes.weight_at(i), DType::f32)), 0x80000000u);
    }
  }
}

}  // namespace
}  // namespace tandem
