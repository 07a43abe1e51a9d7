#include <gtest/gtest.h>

#include "adam_cases.h"

namespace tandem {
namespace {

class ConfigAdamErrors : public testing::Test {
 protected:
  /// `spans` must be refused with `words` in the message, and nothing written.
  void expect_refused(const AdamSpans& spans, const std::string& words, float prediction = 0,
                      const AdamPlace& place = test_place()) {
    const Planes before = planes_;
    try {
      adam(*workers_, Isa::scalar, spans, Decay::none, test_scalars(), prediction, place);
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
  spans.states.moment2 = spans.states.moment2.first(4 * 63);
  expect_refused(spans, "252 bytes of moment2: 64 elements of fp32+fp32 states are 256");
  spans = planes_.spans(false);
  spans.weight_out = spans.weight_out.flat(0, 32);
  expect_refused(spans, "32 elements of weight_out and 64 of grad");
}

TEST_F(ConfigAdamErrors, NullWithALength) {
  AdamSpans spans = planes_.spans(false);
  spans.weight_out = Tensor(nullptr, DType::bf16, {64});
  expect_refused(spans, "weight_out at null");
  spans = planes_.spans(false);
  spans.states.moment1 = std::span<std::byte>(static_cast<std::byte*>(nullptr), 4 * 64);
  expect_refused(spans, "moment1 at null");
}

TEST_F(ConfigAdamErrors, Overlaps) {
  AdamSpans spans = planes_.spans(false);
  spans.states.moment2 = spans.states.moment1;
  expect_refused(spans, "overlapping moment1 and moment2");
  spans = planes_.spans(false);
  spans.states.moment1 = {planes_.master.data() + 4 * 63, 4 * 64};  // the last element of master
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
  expect_refused(spans, "fp32+fp32 states from a gradient of bfloat16 to weights of float16");
}

TEST_F(ConfigAdamErrors, AnIsaOfAnotherArchitecture) {
  for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::neon})
    if (!adam_built_for(isa)) {
      EXPECT_THROW(adam(*workers_, isa, planes_.spans(false), Decay::none, test_scalars(), 0), InternalError);
    }
  for (const Isa isa : usable_isas()) EXPECT_TRUE(adam_built_for(isa)) << name_of(isa);
}

TEST_F(ConfigAdamErrors, MisalignedPlanes) {
  AdamSpans spans = planes_.spans(false);
  spans.states.master = {planes_.master.data() + 2, 4 * 64};
  expect_refused(spans, "master, which isn't aligned to its elements of 4 bytes");
}

TEST_F(ConfigAdamErrors, RangesThatBeginWithinABlock) {
  expect_refused(planes_.spans(false), "from element 32, not a multiple of 64", 0, test_place(32));
}

TEST_F(ConfigAdamErrors, PlanesThatTheFormatDoesNotHave) {
  AdamSpans spans = planes_.spans(false);
  spans.states.scale1 = {planes_.weight.data(), 4};
  expect_refused(spans, "4 bytes of scale1: 64 elements of fp32+fp32 states are 0");
  spans = planes_.spans(false);
  spans.upper_in = spans.weight_out;
  expect_refused(spans, "64 elements of upper_in and 0 of grad");
}

/// Compact states over bf16 weights.
class ConfigAdamFormatErrors : public ConfigAdamErrors {
 protected:
  void hold(StateFormat format, float prediction = 0) {
    planes_ = Planes(64, 0, {DType::bf16, DType::bf16, Decay::none, prediction, format});
  }
};

TEST_F(ConfigAdamFormatErrors, PlanesThatTheFormatLacks) {
  hold({MasterFormat::split, MomentFormat::int8});
  AdamSpans spans = planes_.spans(false);
  spans.states.scale2 = {};
  expect_refused(spans, "0 bytes of scale2: 64 elements of split+int8 states are 4");
  spans = planes_.spans(false);
  spans.upper_in = {};
  expect_refused(spans, "0 elements of upper_in and 64 of grad");
}

TEST_F(ConfigAdamFormatErrors, UpperHalvesThatAreNotBf16) {
  hold({MasterFormat::split, MomentFormat::fp32});
  AdamSpans spans = planes_.spans(false);
  spans.upper_in = Tensor(spans.upper_in.raw(), DType::f16, {64});
  expect_refused(spans, "beside weights of float16 and bfloat16");
  spans = planes_.spans(false);
  spans.weight_out = spans.upper_out = Tensor(spans.upper_out.raw(), DType::f16, {64});
  expect_refused(spans, "beside weights of bfloat16 and float16");
}

TEST_F(ConfigAdamFormatErrors, PredictedWeightsOverTheUpperHalf) {
  hold({MasterFormat::ulp8, MomentFormat::bf16}, 1);
  AdamSpans spans = planes_.spans(false);
  spans.weight_out = spans.upper_out;
  expect_refused(spans, "overlapping weight_out and upper_out", 1);
}

TEST_F(ConfigAdamFormatErrors, RandomBitsWithoutAKey) {
  hold({MasterFormat::fp32, MomentFormat::bf16});
  expect_refused(planes_.spans(false), "fp32+bf16 states without a key", 0, {});
  hold({MasterFormat::split, MomentFormat::fp32});  // draws none
  adam(*workers_, Isa::scalar, planes_.spans(false), Decay::none, test_scalars(), 0, {});
}

}  // namespace
}  // namespace tandem
