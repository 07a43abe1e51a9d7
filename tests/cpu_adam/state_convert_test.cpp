#include "cpu_adam/state_convert.h"

#include <gtest/gtest.h>

#include "adam_cases.h"

namespace tandem {
namespace {

/// Finite values of many sizes; a second moment is never below the square of its first.
struct Values {
  std::vector<float> master, moment1, moment2;
  explicit Values(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const Philox r = philox(9, static_cast<uint64_t>(i), 0);
      const auto value = [](uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f; };
      master.push_back(value(r.x[0]));
      moment1.push_back(std::ldexp(value(r.x[1]), -static_cast<int>(r.x[3] % 6)));
      moment2.push_back(moment1.back() * moment1.back() + 1e-3f * std::fabs(value(r.x[2])));
    }
  }
  StateValues view() { return {master, moment1, moment2}; }
};

Tensor upper_of_planes(Planes& planes) {
  return planes.beside() ? Tensor(planes.at<uint16_t>(planes.upper, 0), DType::bf16, {planes.n}) : Tensor();
}

TEST(NumbersStateConvert, ValuesComeBackWithinTheFormatsError) {
  constexpr int64_t n = 16384 + 77;
  for (const StateFormat format : all_state_formats()) {
    Planes planes(n, 0, {DType::bf16, DType::bf16, Decay::none, 0, format});
    Values in(n), out(n);
    for (auto* plane : {&out.master, &out.moment1, &out.moment2}) plane->assign(n, NAN);
    const AdamStates states = planes.spans(false).states;
    const auto workers = make_workers(PoolKind::plain, 2);
    encode_states(*workers, states, upper_of_planes(planes), in.view(), {{1, 2, 3}});
    decode_states(*workers, states, upper_of_planes(planes), out.view());
    double master_error = 0, moment1_error = 0, moment2_error = 0;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      master_error = std::max(master_error, std::fabs(double{out.master[i]} - in.master[i]) /
                                                std::max(1e-30, std::fabs(double{in.master[i]})));
      // Steps of int8 are at most 1/32 of m, and 1/64 of the root of v, plus 1/11.8 of the largest of its 32;
      // bf16 keeps 2^-7.
      float largest = 0, largest_root = 0;
      for (size_t k = i / 32 * 32; k < std::min(i / 32 * 32 + 32, static_cast<size_t>(n)); ++k) {
        largest = std::max(largest, std::fabs(in.moment1[k]));
        largest_root = std::max(largest_root, std::sqrt(in.moment2[k]));
      }
      moment1_error = std::max(moment1_error, std::fabs(double{out.moment1[i]} - in.moment1[i]) / largest);
      moment2_error =
          std::max(moment2_error, std::fabs(std::sqrt(out.moment2[i]) - std::sqrt(in.moment2[i])) /
                                      static_cast<double>(largest_root));
    }
    const double masters[] = {0, 0, 0x1p-15};
    const double first[] = {0, 0x1p-7, 1.085 / 32}, second[] = {0, 0x1p-7, 1.085 / 64};
    EXPECT_LE(master_error, masters[static_cast<size_t>(format.master)]) << name_of(format);
    EXPECT_LE(moment1_error, first[static_cast<size_t>(format.moments)]) << name_of(format);
    EXPECT_LE(moment2_error, second[static_cast<size_t>(format.moments)]) << name_of(format);
  }
}

TEST(IdentityStateConvert, CodesAsThePassDoes) {
  // The pass, with nothing to update (lr, gradient 0 and betas of 1), codes what it decoded.
  constexpr int64_t n = 200;
  const auto workers = make_workers(PoolKind::plain, 1);
  for (const StateFormat format : all_state_formats()) {
    const AdamCase c{DType::bf16, DType::bf16, Decay::none, 0, format};
    Planes planes(n, 0, c);
    Values values(n);
    encode_states(*workers, planes.spans(false).states, upper_of_planes(planes), values.view(), {{1, 2, 3}});
    for (int64_t i = 0; i < n; ++i) put(planes.grad_at(i), DType::bf16, 0);
    Planes passed = planes;
    AdamSpans spans = passed.spans(false);
    if (passed.beside()) spans.weight_out = spans.upper_out = spans.upper_in;
    AdamScalars still = test_scalars();
    still.beta1 = still.beta2 = 1;
    still.neg_step = 0;
    adam(*workers, Isa::scalar, spans, Decay::none, still, 0, {{1, 2, 4}, 0});
    passed.weight = planes.weight;
    decode_states(*workers, planes.spans(false).states, upper_of_planes(planes), values.view());
    encode_states(*workers, planes.spans(false).states, upper_of_planes(planes), values.view(), {{1, 2, 4}});
    EXPECT_TRUE(same_bits(planes, passed)) << name_of(format);
  }
}

TEST(ConfigStateConvertErrors, WrongLengths) {
  const auto workers = make_workers(PoolKind::plain, 1);
  Planes planes(64, 0, {DType::bf16, DType::bf16, Decay::none, 0, {MasterFormat::ulp8, MomentFormat::int8}});
  Values values(64), fewer(63);
  const AdamStates states = planes.spans(false).states;
  const Tensor upper = upper_of_planes(planes);
  EXPECT_THROW(encode_states(*workers, states, upper, fewer.view(), {{1, 2, 3}}), InternalError);
  EXPECT_THROW(encode_states(*workers, states, {}, values.view(), {{1, 2, 3}}), InternalError);
  EXPECT_THROW(encode_states(*workers, states, upper, values.view(), {{1, 2, 0}}), InternalError);
  EXPECT_THROW(decode_states(*workers, states, {}, values.view()), InternalError);
}

}  // namespace
}  // namespace tandem
