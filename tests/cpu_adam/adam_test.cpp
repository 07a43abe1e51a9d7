#include "cpu_adam/adam.h"

#include <gtest/gtest.h>

#include "adam_cases.h"

namespace tandem {
namespace {

/// The case's own bits: `planes` after one pass on `isa` must be those of the plain loop, guards included.
void expect_reference_bits(Workers& workers, Isa isa, const AdamCase& c, int64_t n, int64_t shift,
                           bool in_place) {
  const AdamScalars scalars = test_scalars();
  Planes wanted(n, shift, c);
  fill(wanted);
  Planes got = wanted;
  reference(wanted, c, scalars, in_place);
  adam(workers, isa, got.spans(in_place), c.decay, scalars, c.prediction);
  EXPECT_TRUE(same_bits(wanted, got)) << name_of(isa) << ", " << label(c) << ", n " << n << ", shift "
                                      << shift << (in_place ? ", in place, " : ", ") << workers.describe();
}

bool can_be_in_place(const AdamCase& c) { return size_of(c.grad) == size_of(c.weight); }

TEST(IdentityAdam, EveryIsaTypeDecayTailAndAlignmentGivesTheFormulasBits) {
  const auto workers = make_workers(PoolKind::plain, 1);
  for (const Isa isa : usable_isas())
    for (const AdamCase& c : all_adam_cases())
      for (const int64_t n : {0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 4095, 4096, 4097})
        for (const int64_t shift : {0, 1, 3})
          expect_reference_bits(*workers, isa, c, n, shift, shift == 1 && can_be_in_place(c));
}

TEST(IdentityAdam, EveryPoolAndThreadCountGivesTheFormulasBits) {
  constexpr int64_t kSeveralTasks = 5 * 16384 + 17;
  for (const PoolKind kind : pool_kinds())
    for (const int threads : {1, 2, 3, 5}) {
      const auto workers = make_workers(kind, threads);
      for (const Isa isa : usable_isas())
        for (const AdamCase& c : {AdamCase{DType::bf16, DType::bf16, Decay::decoupled, 1.0f},
                                  AdamCase{DType::f16, DType::f16, Decay::l2, 0.0f},
                                  AdamCase{DType::f32, DType::f32, Decay::none, 0.5f}})
          expect_reference_bits(*workers, isa, c, kSeveralTasks, 1, threads % 2 == 0);
    }
}

TEST(IdentityAdam, NoticesOneWrongBit) {  // the comparison above has teeth
  Planes a(65, 1, {}), b(65, 1, {});
  fill(a);
  fill(b);
  EXPECT_TRUE(same_bits(a, b));
  b.master[65] = std::nextafter(b.master[65], 2.0f);  // the last element
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

class ConfigAdamErrors : public testing::Test {
 protected:
  /// `spans` must be refused with `words` in the message, and nothing written.
  void expect_refused(const AdamSpans& spans, const std::string& words) {
    const Planes before = planes_;
    try {
      adam(*workers_, Isa::scalar, spans, Decay::none, test_scalars(), 0.0f);
      ADD_FAILURE() << "accepted; expected: " << words;
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
    EXPECT_TRUE(same_bits(before, planes_));
  }
  std::unique_ptr<Workers> workers_ = make_workers(PoolKind::plain, 1);
  Planes planes_{64, 0, {DType::bf16, DType::bf16}};
};

TEST_F(ConfigAdamErrors, UnequalLengths) {
  AdamSpans spans = planes_.spans(false);
  spans.moment2 = spans.moment2.first(63);
  expect_refused(spans, "63 elements of moment2 and 64 of master");
  spans = planes_.spans(false);
  spans.grad = spans.grad.flat(0, 32);
  expect_refused(spans, "32 elements of grad and 64 of master");
}

TEST_F(ConfigAdamErrors, NullWithALength) {
  AdamSpans spans = planes_.spans(false);
  spans.weight_out = Tensor(nullptr, DType::bf16, {64});
  expect_refused(spans, "weight_out at null");
  spans = planes_.spans(false);
  spans.moment1 = std::span<float>(static_cast<float*>(nullptr), 64);
  expect_refused(spans, "moment1 at null");
}

TEST_F(ConfigAdamErrors, Overlaps) {
  AdamSpans spans = planes_.spans(false);
  spans.moment2 = spans.moment1;
  expect_refused(spans, "overlapping moment1 and moment2");
  spans = planes_.spans(false);
  spans.moment1 = std::span<float>(planes_.master.data() + 63, 64);  // the last element of master
  expect_refused(spans, "overlapping master and moment1");
  spans = planes_.spans(false);
  spans.weight_out = Tensor(planes_.grad_at(1), DType::bf16, {64});  // one off from in place
  expect_refused(spans, "overlapping grad and weight_out");
  spans = planes_.spans(false);
  spans.grad = Tensor(planes_.master.data(), DType::bf16, {64});
  expect_refused(spans, "overlapping master and grad");
}

TEST_F(ConfigAdamErrors, InPlaceNeedsEqualSizes) {
  std::vector<float> grad(64, 1.0f);
  AdamSpans spans = planes_.spans(false);
  spans.grad = Tensor(grad.data(), DType::f32, {64});
  spans.weight_out = Tensor(grad.data(), DType::bf16, {64});
  expect_refused(spans, "overlapping grad and weight_out");
  EXPECT_EQ(grad, std::vector<float>(64, 1.0f));
}

TEST_F(ConfigAdamErrors, TypesWithoutAKernel) {
  AdamSpans spans = planes_.spans(false);
  spans.weight_out = Tensor(planes_.weight_at(0), DType::f16, {64});
  expect_refused(spans, "gradient of bfloat16 to weights of float16");
}

TEST_F(ConfigAdamErrors, AnIsaOfAnotherArchitecture) {
  for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::neon})
    if (!adam_built_for(isa)) {
      EXPECT_THROW(adam(*workers_, isa, planes_.spans(false), Decay::none, test_scalars(), 0), InternalError);
    }
  for (const Isa isa : usable_isas()) EXPECT_TRUE(adam_built_for(isa)) << name_of(isa);
}

}  // namespace
}  // namespace tandem
