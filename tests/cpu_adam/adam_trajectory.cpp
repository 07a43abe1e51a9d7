#include "adam_trajectory.h"

#include <algorithm>
#include <bit>
#include <map>
#include <stdexcept>

#include "adam_cases.h"
#include "core/io/json.h"
#include "tests/offload/golden_weights.h"

namespace tandem::trajectory {

namespace {

using golden::fnv1a;
using golden::uniform;

constexpr int kFp32Bits = 24;

Case case_of(const json::Node& node) {
  static const std::map<std::string, Decay> decays{
      {"none", Decay::none}, {"l2", Decay::l2}, {"decoupled", Decay::decoupled}};
  const json::Node errors = node.at("torch_error"), checks = node.at("checks");
  Case c;
  c.name = node.at("name").as_string();
  c.decay = decays.at(node.at("decay").as_string());
  c.hyper = {.beta1 = node.at("beta1").as_double(),
             .beta2 = node.at("beta2").as_double(),
             .eps = node.at("eps").as_double(),
             .weight_decay = node.at("weight_decay").as_double()};
  c.lr = node.at("lr").as_double();
  c.start = node.at("start").as_double();
  c.torch_error = std::min(errors.at("fused").as_double(), errors.at("loop").as_double());
  c.norm = checks.at("norm").as_double();
  c.p = checks.at("p").as_double();
  c.m = checks.at("m").as_double();
  c.v = checks.at("v").as_double();
  return c;
}

/// Update t of all elements.
void update(States& s, std::span<const float> gradient, const Case& c, int64_t t) {
  const AdamHyper& h = c.hyper;
  const double bias1 = 1 - std::pow(h.beta1, t), bias2 = 1 - std::pow(h.beta2, t);
  for (size_t i = 0; i < gradient.size(); ++i) {
    double g = gradient[i];
    if (c.decay == Decay::l2) g += h.weight_decay * s.p[i];
    s.m[i] = h.beta1 * s.m[i] + (1 - h.beta1) * g;
    s.v[i] = h.beta2 * s.v[i] + (1 - h.beta2) * g * g;
    if (c.decay == Decay::decoupled) s.p[i] -= c.lr * h.weight_decay * s.p[i];
    s.p[i] -= c.lr * (s.m[i] / bias1) / (std::sqrt(s.v[i] / bias2) + h.eps);
  }
}

template <class AfterUpdate>
States run(const Case& c, const std::vector<float>& gradients, const AfterUpdate& after) {
  const std::vector<float> start = c.first_masters();
  States s{{start.begin(), start.end()}, std::vector<double>(kElements), std::vector<double>(kElements)};
  for (int64_t t = 1; t <= kSteps; ++t) {
    update(s, of_update(gradients, t), c, t);
    after(s);
  }
  return s;
}

}  // namespace

std::vector<float> Case::first_masters() const {
  std::vector<float> p(kElements);
  for (size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(start) * uniform(fnv1a("start"), i);
  return p;
}

std::vector<Case> cases() {
  const json::Document file =
      json::parse_file(std::string(TANDEM_SOURCE_DIR) + "/tests/golden/adam_trajectory.json");
  const json::Node root(file);
  if (root.at("elements").as_i64() != kElements || root.at("steps").as_i64() != kSteps)
    throw std::runtime_error(file.name + ": other elements or steps than adam_trajectory.h's");
  std::vector<Case> all;
  for (const json::Node& node : root.at("cases").items()) all.push_back(case_of(node));
  return all;
}

std::vector<float> gradients() {
  std::vector<float> all;
  for (int64_t t = 1; t <= kSteps; ++t) {
    const uint64_t stream = fnv1a("gradient." + std::to_string(t));
    for (uint64_t i = 0; i < kElements; ++i)
      all.push_back(
          std::ldexp(uniform(stream, i) + 0.25f * uniform(fnv1a("drift"), i), -static_cast<int>(i / 32)));
  }
  return all;
}

FormatModel::FormatModel(StateFormat format, Rounding rounding, int bits_less)
    : format_(format), rounding_(rounding), bits_less_(bits_less) {
  if (format.moments != MomentFormat::int8) return;
  grids1_ = grids_of_int8(false);
  grids2_ = grids_of_int8(true);
}

FormatModel::Grids FormatModel::grids_of_int8(bool second) {
  constexpr uint32_t kCodes = 256;
  Planes planes(kCodes, 0, {.format = {MasterFormat::fp32, MomentFormat::int8}});
  Grids grids;
  for (uint32_t scale = 0x3F80; scale < 0x4000; ++scale) {  // every bf16 in [1, 2)
    std::vector<double> grid;
    for (uint32_t code = 0; code < kCodes; ++code) {
      *planes.at<uint8_t>(second ? planes.moment2 : planes.moment1, code) = static_cast<uint8_t>(code);
      *planes.at<uint16_t>(second ? planes.scale2 : planes.scale1, code / kStateGroup) =
          static_cast<uint16_t>(scale);
      grid.push_back(std::fabs(second ? moment2_of(planes, code) : moment1_of(planes, code)));
    }
    std::sort(grid.begin(), grid.end());
    grid.erase(std::unique(grid.begin(), grid.end()), grid.end());
    grids.push_back(std::move(grid));
  }
  return grids;
}

double FormatModel::between(double below, double above, double x, Rounding rounding) {
  const double from =
      rounding == Rounding::nearest ? 0.5 : static_cast<double>(golden::mix(++drawn_) >> 11) * 0x1p-53;
  return from < (x - below) / (above - below) ? above : below;
}

void FormatModel::round_bits(std::span<double> values, int bits) {
  const Rounding rounding = bits == kFp32Bits ? Rounding::nearest : rounding_;
  for (double& x : values) {
    if (x == 0) continue;
    const double step = std::ldexp(1.0, std::ilogb(x) - (bits - bits_less_ - 1));
    const double below = std::floor(x / step) * step;
    if (below != x) x = between(below, below + step, x, rounding);
  }
}

/// By the smallest scale with which the largest of a group can be held. What isn't 0 stays so.
void FormatModel::round_groups(std::span<double> values, const Grids& grids) {
  for (size_t first = 0; first < values.size(); first += kStateGroup) {
    const std::span<double> group = values.subspan(first, kStateGroup);
    double largest = 0;
    for (const double x : group) largest = std::max(largest, std::fabs(x));
    if (largest == 0) continue;
    double power = std::exp2(std::floor(std::log2(largest / grids.front().back())));
    if (power * grids.back().back() < largest) power *= 2;
    const std::vector<double>& grid =
        *std::partition_point(grids.begin(), grids.end(),
                              [&](const auto& candidate) { return power * candidate.back() < largest; });
    for (double& x : group) {
      if (x == 0) continue;
      const double size = std::max(std::fabs(x) / power, grid[1]);
      const auto above = std::lower_bound(grid.begin(), grid.end(), size);
      const double kept = *above == size ? size : between(above[-1], *above, size, rounding_);
      x = std::copysign(power * kept, x);
    }
  }
}

void FormatModel::round(std::span<double> p, std::span<double> m, std::span<double> v) {
  round_bits(p, format_.master == MasterFormat::ulp8 ? 16 : kFp32Bits);
  if (format_.moments == MomentFormat::int8) {
    round_groups(m, grids1_);
    round_groups(v, grids2_);
  } else {
    const int bits = format_.moments == MomentFormat::bf16 ? 8 : kFp32Bits;
    round_bits(m, bits);
    round_bits(v, bits);
  }
}

States double_trajectory(const Case& c, const std::vector<float>& gradients) {
  return run(c, gradients, [](States&) {});
}
States double_trajectory(const Case& c, const std::vector<float>& gradients, FormatModel model) {
  return run(c, gradients, [&](States& s) { model.round(s.p, s.m, s.v); });
}

double relative_error(std::span<const double> p, std::span<const double> wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    difference += (p[i] - wanted[i]) * (p[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace tandem::trajectory
