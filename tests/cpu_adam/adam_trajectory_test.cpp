#include "adam_trajectory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "adam_cases.h"
#include "tests/offload/golden_weights.h"

// A thousand updates beside double precision: in fp32 nearly as near as PyTorch's, and in the compact formats
// no further off than their steps bring about.

namespace tandem::trajectory {
namespace {

/// How much further off than PyTorch's fp32.
constexpr double kBesideTorch = 1.2;
/// How much further off than the format's model, which rounds by other random numbers: the norms of 1024
/// independent errors differ by some per cent, in a format that has one bit less by 40 (where the updates
/// are smaller than the steps, so that their variance is that of the updates times a step) or 100.
constexpr double kBesideModel = 1.25;

/// The masters after a case's updates by the pass; h: the case's own, or another.
std::vector<double> masters_after(const Case& c, const AdamHyper& h, const std::vector<float>& gradients,
                                  Isa isa, StateFormat format) {
  const DType weight = format == StateFormat{} ? DType::f32 : DType::bf16;
  Planes planes(kElements, 0, {.grad = DType::f32, .weight = weight, .format = format});
  for (auto* plane : {&planes.moment1, &planes.moment2, &planes.scale1, &planes.scale2})
    std::ranges::fill(*plane, std::byte{0});
  const std::vector<float> start = c.first_masters();
  for (int64_t i = 0; i < kElements; ++i)
    set_master(planes, i, start[static_cast<size_t>(i)], 0, planes.at<uint16_t>(planes.upper, i));
  const auto workers = make_workers(PoolKind::plain, 1);
  AdamSpans spans = planes.spans(false);
  if (planes.beside()) spans.weight_out = spans.upper_out = spans.upper_in;
  for (int64_t t = 1; t <= kSteps; ++t) {
    std::ranges::copy(of_update(gradients, t), reinterpret_cast<float*>(planes.grad_at(0)));
    adam(*workers, isa, spans, c.decay, adam_scalars(h, c.lr, t, 1.0, 1.0), 0.0f,
         {{11, 1, static_cast<uint32_t>(t)}, 0});
  }
  std::vector<double> p;
  for (int64_t i = 0; i < kElements; ++i) p.push_back(master_of(planes, i));
  return p;
}

/// A case with its gradients and its trajectory in double.
class CaseRun {
 public:
  explicit CaseRun(const Case& c) : case_(c) {}
  std::vector<double> masters(Isa isa, StateFormat format) const {
    return masters_after(case_, case_.hyper, gradients_, isa, format);
  }
  double error(std::span<const double> p) const { return relative_error(p, double_.p); }
  double model_error(const FormatModel& model) const {
    return error(double_trajectory(case_, gradients_, model).p);
  }
  /// Of a compact format: its model's steps, and the arithmetic of fp32.
  double bound(StateFormat format) const {
    return kBesideModel * model_error(FormatModel(format)) + kBesideTorch * case_.torch_error;
  }

 protected:
  const Case case_;
  const std::vector<float> gradients_ = gradients();
  const States double_ = double_trajectory(case_, gradients_);
};

class NumbersAdamTrajectory : public testing::TestWithParam<Case>, protected CaseRun {
 protected:
  NumbersAdamTrajectory() : CaseRun(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Cases, NumbersAdamTrajectory, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

constexpr StateFormat kUlp8{MasterFormat::ulp8, MomentFormat::fp32};
constexpr StateFormat kBf16{MasterFormat::fp32, MomentFormat::bf16};
constexpr StateFormat kInt8{MasterFormat::fp32, MomentFormat::int8};

TEST_P(NumbersAdamTrajectory, OursInDoubleIsTheScripts) {
  const auto checked = [](const std::vector<double>& values) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[i] * golden::uniform(golden::fnv1a("check"), i);
    return sum;
  };
  // A thousand roundings of some 2^-53 each.
  const double tolerance = 1e-12 * case_.norm;
  EXPECT_NEAR(std::sqrt(std::inner_product(double_.p.begin(), double_.p.end(), double_.p.begin(), 0.0)),
              case_.norm, tolerance);
  EXPECT_NEAR(checked(double_.p), case_.p, tolerance);
  EXPECT_NEAR(checked(double_.m), case_.m, tolerance);
  EXPECT_NEAR(checked(double_.v), case_.v, tolerance);
}

TEST_P(NumbersAdamTrajectory, Fp32IsNearlyAsExactAsPyTorch) {
  for (const Isa isa : usable_isas()) {
    const double off = error(masters(isa, {}));
    EXPECT_LE(off, kBesideTorch * case_.torch_error) << name_of(isa);
    EXPECT_GT(off, 0);
    RecordProperty(std::string(name_of(isa)), std::to_string(off / case_.torch_error));
  }
}

TEST_P(NumbersAdamTrajectory, SplitMastersAreThoseOfFp32) {
  for (const Isa isa : usable_isas())
    for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::int8})
      EXPECT_EQ(masters(isa, {MasterFormat::split, moments}), masters(isa, {MasterFormat::fp32, moments}))
          << name_of(isa) << ", " << name_of({MasterFormat::split, moments});
}

TEST_P(NumbersAdamTrajectory, CompactFormatsErrByWhatTheirStepsBringAbout) {
  for (const StateFormat format : all_state_formats()) {
    if (!stochastic(format) || format.master == MasterFormat::split) continue;  // split: as fp32, above
    const double most = bound(format);
    for (const Isa isa : usable_isas()) {
      const double off = error(masters(isa, format));
      EXPECT_LE(off, most) << name_of(format) << ", " << name_of(isa);
      RecordProperty(name_of(format), std::to_string(off / most));
    }
  }
}

TEST_P(NumbersAdamTrajectory, NoticesAWrongBeta) {
  AdamHyper other = case_.hyper;
  other.beta1 -= 0.1;
  EXPECT_GT(error(masters_after(case_, other, gradients_, Isa::scalar, {})),
            kBesideTorch * case_.torch_error);
}

TEST_P(NumbersAdamTrajectory, NoticesOneBitLess) {
  for (const StateFormat format : {kUlp8, kBf16})
    EXPECT_GT(model_error(FormatModel(format, Rounding::stochastic, 1)), bound(format)) << name_of(format);
  // PyTorch multiplies by 1 - lr * weight_decay, rounded, which outweighs its other roundings; and beta2
  // 0.999, rounded, those of small updates.
  if (case_.decay == Decay::decoupled || case_.hyper.beta2 > 0.99) return;
  EXPECT_GT(model_error(FormatModel({}, Rounding::nearest, 1)), kBesideTorch * case_.torch_error);
}

/// Masters that are moved by less than their steps; second moments of which an update changes a thousandth.
TEST(NumbersAdamTrajectoryBounds, NoticeRoundingToNearest) {
  int seen = 0;
  for (const Case& c : cases())
    for (const auto& [name, format] : {std::pair("small_steps", kUlp8), std::pair("decoupled", kInt8)}) {
      if (c.name != name) continue;
      const CaseRun run(c);
      EXPECT_GT(run.model_error(FormatModel(format, Rounding::nearest)), run.bound(format)) << c.name;
      ++seen;
    }
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace tandem::trajectory
