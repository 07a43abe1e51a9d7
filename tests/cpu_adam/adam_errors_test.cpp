#include <gtest/gtest.h>

#include <algorithm>
#include <array>

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

/// All planes of a format in one memory, a kilobyte for each, so that any of them can be put anywhere.
class ConfigAdamEveryPlane : public testing::TestWithParam<StateFormat> {
 protected:
  static constexpr int64_t kElements = 64;
  static constexpr size_t kPlanes = 9;
  static constexpr std::array<const char*, kPlanes> kNames{
      "master", "moment1", "moment2", "scale1", "scale2", "grad", "weight_out", "upper_in", "upper_out"};
  struct Place {
    std::byte* data;
    int64_t elements;
  };

  ConfigAdamEveryPlane() {
    for (size_t i = 0; i < kPlanes; ++i) places_[i] = {memory_.data() + 1024 * i, kElements};
  }
  [[nodiscard]] bool has(size_t i) const { return bytes(i) > 0; }
  [[nodiscard]] size_t bytes(size_t i) const {
    if (i < kStatePlanes) return plane_bytes(GetParam(), static_cast<StatePlane>(i), places_[i].elements);
    const bool upper = i >= 7;
    return upper && !row_of(GetParam().master).beside_weights ? 0 : 2 * static_cast<size_t>(kElements);
  }
  [[nodiscard]] AdamSpans spans() const {
    const auto state = [&](size_t i) { return std::span<std::byte>(places_[i].data, bytes(i)); };
    const auto tensor = [&](size_t i) {
      return has(i) ? Tensor(places_[i].data, DType::bf16, {places_[i].elements}) : Tensor();
    };
    return {{GetParam(), state(0), state(1), state(2), state(3), state(4)},
            tensor(5),
            tensor(6),
            tensor(7),
            tensor(8)};
  }
  /// What adam says of the places as they are; it must write nothing.
  std::string refusal() {
    const std::vector<std::byte> before = memory_;
    std::string words = "accepted";
    try {
      adam(*workers_, Isa::scalar, spans(), Decay::none, test_scalars(), 0, test_place());
    } catch (const InternalError& error) {
      words = error.what();
    }
    EXPECT_EQ(before, memory_);
    return words;
  }
  void expect_refused(const std::string& words) {
    const std::string said = refusal();
    EXPECT_NE(said.find(words), std::string::npos) << said << "; expected: " << words;
  }

  std::unique_ptr<Workers> workers_ = make_workers(PoolKind::plain, 1);
  std::vector<std::byte> memory_ = std::vector<std::byte>(1024 * kPlanes, std::byte{1});
  std::array<Place, kPlanes> places_{};
};

TEST_P(ConfigAdamEveryPlane, IsAcceptedByItself) {
  EXPECT_NO_THROW(adam(*workers_, Isa::scalar, spans(), Decay::none, test_scalars(), 0, test_place()));
}

/// With the last four bytes of each other plane.
TEST_P(ConfigAdamEveryPlane, MayNotOverlapAnother) {
  for (size_t of = 0; of < kPlanes; ++of)
    for (size_t moved = 0; moved < kPlanes; ++moved) {
      if (of == moved || !has(of) || !has(moved)) continue;
      const Place own = places_[moved];
      places_[moved].data = places_[of].data + bytes(of) - 4;
      expect_refused(
          fmt::format("overlapping {} and {}", kNames[std::min(of, moved)], kNames[std::max(of, moved)]));
      places_[moved] = own;
    }
}

TEST_P(ConfigAdamEveryPlane, MayNotBeNull) {
  for (size_t i = 0; i < kPlanes; ++i) {
    if (!has(i)) continue;
    const Place own = places_[i];
    places_[i].data = nullptr;
    expect_refused(fmt::format("of {} at null", kNames[i]));
    places_[i] = own;
  }
}

/// By a group of the states with scales.
TEST_P(ConfigAdamEveryPlane, MayNotBeShorter) {
  for (size_t i = 0; i < kPlanes; ++i) {
    if (!has(i)) continue;
    const Place own = places_[i];
    places_[i].elements -= kStateGroup;
    // All are compared with the gradient, the masters first.
    expect_refused(std::string(kNames[i]) == "grad" ? "of master: 32 elements"
                                                    : fmt::format("of {}", kNames[i]));
    places_[i] = own;
  }
}

TEST_P(ConfigAdamEveryPlane, MayNotBeMisaligned) {
  for (size_t i = 0; i < kPlanes; ++i) {
    const size_t element = i < kStatePlanes ? shape_of(GetParam(), static_cast<StatePlane>(i)).bytes : 2;
    if (!has(i) || element == 1) continue;
    const Place own = places_[i];
    places_[i].data += 1;
    expect_refused(fmt::format("{}, which isn't aligned to its elements of {} bytes", kNames[i], element));
    places_[i] = own;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ConfigAdamEveryPlane, testing::ValuesIn(all_state_formats()),
                         [](const auto& format) {
                           std::string name = name_of(format.param);
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem
