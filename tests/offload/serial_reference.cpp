#include "tests/offload/serial_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/glob.h"
#include "core/math/adam_formula.h"
#include "core/math/reduce_tree.h"
#include "core/run/loss_scale.h"
#include "cpu_adam/state_convert.h"
#include "tests/offload/golden_weights.h"
#include "tests/offload/serial_model.h"

namespace tandem::testing {

namespace {

/// Lag and scale from the rules and a table of all facts.
class Rules {
 public:
  Rules(const PolicyOptions& options, SerialFault fault) : options_(options), fault_(fault) {}
  /// loss: NaN where nothing was trained.
  void add(bool overflow, double scale, double loss) { facts_.push_back({overflow, scale, loss}); }

  [[nodiscard]] int lag(int64_t step) {
    if (const auto known = lags_.find(step); known != lags_.end()) return known->second;
    return lags_[step] = find_lag(step);
  }
  [[nodiscard]] double scale(int64_t step) {
    LossScaler scaler(options_.loss_scale);
    for (int64_t i = 0, last = horizon(step); i <= last; ++i) {
      const Fact& fact = facts_.at(static_cast<size_t>(i));
      const bool current = fact.scale == scaler.scale() || fault_ == SerialFault::scales_fall_twice;
      scaler.update(fact.overflow, current);
    }
    return scaler.scale();
  }
  [[nodiscard]] bool read_late_only(int64_t version) { return lag(version) == 1 && lag(version + 1) == 1; }

 private:
  struct Fact {
    bool overflow;
    double scale, loss;
  };
  /// The mean of the last 20 losses, the fact's own among them, is too far above the lowest such mean.
  [[nodiscard]] bool has_risen(int64_t fact) const {
    if (options_.staleness_limit == 0 || !std::isfinite(facts_.at(static_cast<size_t>(fact)).loss))
      return false;
    std::vector<double> losses, means;
    for (int64_t i = 0; i <= fact; ++i)
      if (const double loss = facts_[static_cast<size_t>(i)].loss; std::isfinite(loss))
        losses.push_back(loss);
    for (size_t end = 20; end <= losses.size(); ++end) {
      double sum = 0;
      for (size_t i = end - 20; i < end; ++i) sum += losses[i];
      means.push_back(sum / 20);
    }
    return !means.empty() && means.back() > *std::ranges::min_element(means) + options_.staleness_limit;
  }
  /// The last step whose facts this step may use.
  [[nodiscard]] int64_t horizon(int64_t step) { return step - 1 - lag(step - 1); }
  [[nodiscard]] int find_lag(int64_t step) {
    if (step < 0 || options_.schedule != Schedule::delayed || step < options_.warmup_steps) return 0;
    for (int64_t fact = 0, last = horizon(step); fact <= last; ++fact) {
      if (!facts_.at(static_cast<size_t>(fact)).overflow && !has_risen(fact)) continue;
      int64_t first = fact + 1;  // the first step that may know it
      while (horizon(first) < fact) ++first;
      if (fault_ == SerialFault::warm_up_starts_late) ++first;
      if (step >= first && step < first + options_.warmup_steps) return 0;
    }
    return 1;
  }
  const PolicyOptions options_;
  const SerialFault fault_;
  std::vector<Fact> facts_;
  std::map<int64_t, int> lags_;  ///< known: no later fact can change them
};

using Floats = std::vector<std::vector<float>>;  // [block][numel]

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::byte*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

/// States of every block in a compact format. What the fp32 arrays hold between decode() and encode() is
/// theirs.
class CompactStates {
 public:
  CompactStates(const EngineOptions& options, const ParamTable& table)
      : format_{options.masters, options.moments}, seed_(options.seed), table_(table) {
    for (const BlockSpec& block : table.blocks()) {
      auto& planes = planes_.emplace_back();
      for (size_t i = 0; i < kStatePlanes; ++i)
        planes[i].resize(plane_bytes(format_, static_cast<StatePlane>(i), block.numel));
      upper_.emplace_back(row_of(format_.master).beside_weights ? static_cast<size_t>(block.numel) : 0);
    }
  }
  [[nodiscard]] StateFormat format() const { return format_; }
  [[nodiscard]] bool used() const { return !(format_ == StateFormat{}); }

  void decode(const ParamSpec& spec, const StateValues& values) {
    decode_states(*workers_, states(spec), upper(spec), values);
  }
  void encode(const ParamSpec& spec, const StateValues& values, uint32_t t) {
    const auto parameter = table_.index(spec);
    encode_states(*workers_, states(spec), upper(spec), values, {{seed_, parameter, t}, 0});
  }
  [[nodiscard]] PlaneBits plane(StatePlane plane) const {
    PlaneBits bits;
    for (const auto& planes : planes_) bits.push_back(planes[static_cast<size_t>(plane)]);
    return bits;
  }
  [[nodiscard]] PlaneBits upper() const {
    PlaneBits bits;
    for (const std::vector<bf16>& block : upper_) bits.push_back(bytes_of(block));
    return bits;
  }

 private:
  Tensor upper(const ParamSpec& spec) {
    std::vector<bf16>& block = upper_[static_cast<size_t>(spec.block)];
    return block.empty() ? Tensor{} : Tensor(block.data() + spec.offset, DType::bf16, {spec.numel});
  }
  AdamStates states(const ParamSpec& spec) {
    auto& planes = planes_[static_cast<size_t>(spec.block)];
    const auto part = [&](StatePlane plane) {
      return std::span(planes[static_cast<size_t>(plane)])
          .subspan(plane_bytes(format_, plane, spec.offset), plane_bytes(format_, plane, spec.numel));
    };
    return {format_,
            part(StatePlane::master),
            part(StatePlane::moment1),
            part(StatePlane::moment2),
            part(StatePlane::scale1),
            part(StatePlane::scale2)};
  }
  const StateFormat format_;
  const uint64_t seed_;
  const ParamTable& table_;
  const std::unique_ptr<Workers> workers_ = make_workers(PoolKind::plain, 1);
  std::vector<std::array<std::vector<std::byte>, kStatePlanes>> planes_;
  std::vector<std::vector<bf16>> upper_;
};

template <class T>
class Loop {
 public:
  Loop(const EngineOptions& options, SerialFault fault)
      : options_(options),
        fault_(fault),
        table_(options.arch, options.no_decay),
        compact_(options, table_),
        model_(options, table_),
        rules_(options.policy, fault) {
    for (const BlockSpec& block : table_.blocks()) {
      master_.emplace_back(static_cast<size_t>(block.numel));
      exp_avg_.emplace_back(static_cast<size_t>(block.numel));
      exp_avg_sq_.emplace_back(static_cast<size_t>(block.numel));
    }
    for (const ParamSpec& spec : table_.params()) {
      const std::span<float> out(master_[static_cast<size_t>(spec.block)].data() + spec.offset,
                                 static_cast<size_t>(spec.numel));
      options.fill ? options.fill(spec, out)
                   : golden::fill_weight(spec.name, static_cast<int>(spec.shape.size()), out);
    }
    if (compact_.used())
      for (const ParamSpec& spec : table_.params()) recode(spec, UINT32_MAX);
    versions_.push_back(publish(master_, 0));
  }

  void step() {
    const auto i = static_cast<int64_t>(outcome_.decisions.size());
    const int lag = rules_.lag(i);
    const auto read = static_cast<size_t>(std::max<int64_t>(0, i - lag));
    const size_t later = std::min(read + 1, versions_.size() - 1);
    const FormulaTokens window(options_, i);
    Decision d;
    d.step = i;
    d.loss_scale = rules_.scale(i);
    d.tokens = std::count_if(window.targets.begin(), window.targets.end(), [](int32_t t) { return t >= 0; });
    const float grad_scale =
        d.tokens == 0 ? 0.0f : static_cast<float>(d.loss_scale / static_cast<double>(d.tokens));
    const SerialModel::Result result =
        model_.run(window, versions_[fault_ == SerialFault::reads_one_later ? later : read],
                   versions_[fault_ == SerialFault::lease_ends_early ? later : read], grad_scale);
    for (const double loss : result.losses) d.loss += loss;
    if (d.tokens > 0) d.loss /= static_cast<double>(d.tokens);
    const std::vector<std::vector<T>> gradient = decide(d, result);
    update(d, gradient);
    outcome_.decisions.push_back(d);
    outcome_.lags.push_back(lag);
  }

  Outcome outcome() {
    const auto next = static_cast<int64_t>(outcome_.decisions.size());
    outcome_.planes[Plane::weights] = publish(master_, 0);
    for (const auto& [plane, values] :
         {std::pair{Plane::master, &master_}, {Plane::exp_avg, &exp_avg_}, {Plane::exp_avg_sq, &exp_avg_sq_}})
      for (const std::vector<float>& block : *values) outcome_.planes[plane].push_back(bytes_of(block));
    if (compact_.used()) add_compact_planes();
    if (rules_.lag(next) == 1) outcome_.planes[Plane::lagged] = versions_.end()[-2];
    if (outcome_.decisions.back().prediction > 0) outcome_.planes[Plane::predicted] = versions_.back();
    return outcome_;
  }

 private:
  /// Adds the uses, rounds once; norm, flag and clip of what was rounded. Frozen parameters count as zero.
  std::vector<std::vector<T>> decide(Decision& d, const SerialModel::Result& result) {
    std::vector<std::vector<T>> gradient;
    bool overflow = false;
    double squares = 0;
    for (const auto& uses : result.gradient) {
      std::vector<float> sum = uses.front();
      for (size_t use = 1; use < uses.size(); ++use)
        for (size_t k = 0; k < sum.size(); ++k) sum[k] += uses[use][k];
      forget_frozen(static_cast<BlockId>(gradient.size()), sum);
      std::vector<T>& rounded = gradient.emplace_back();
      for (const float x : sum) overflow |= non_finite(rounded.emplace_back(round_to<T>(x)));
      squares += fault_ == SerialFault::norm_before_rounding ? squares_of(sum) : squares_of(rounded);
    }
    d.grad_norm = std::sqrt(squares) / d.loss_scale;
    d.skipped = overflow || d.tokens == 0;
    if (options_.clip > 0 && !d.skipped) d.clip_coef = std::min(1.0, options_.clip / (d.grad_norm + 1e-6));
    d.lr = options_.lr(updates_);
    d.updates = updates_ += d.skipped ? 0 : 1;
    rules_.add(overflow, d.loss_scale, d.tokens > 0 ? d.loss : std::numeric_limits<double>::quiet_NaN());
    return gradient;
  }

  [[nodiscard]] bool is_frozen(const ParamSpec& spec) const {
    return std::ranges::any_of(options_.freeze,
                               [&](const std::string& glob) { return glob_matches(glob, spec.name); });
  }
  void forget_frozen(BlockId block, std::vector<float>& gradient) const {
    for (const ParamSpec& spec : table_.of_block(block))
      if (is_frozen(spec)) std::fill_n(gradient.begin() + spec.offset, spec.numel, 0.0f);
  }

  template <class V>
  static double squares_of(const std::vector<V>& values) {
    std::vector<double> leaves;
    for (size_t begin = 0; begin < values.size(); begin += kReduceLeaf)
      leaves.push_back(leaf_sum_of_squares(
          values.data() + begin,
          static_cast<int64_t>(std::min(values.size() - begin, static_cast<size_t>(kReduceLeaf)))));
    return reduce_leaves(leaves.data(), static_cast<int64_t>(leaves.size()));
  }

  void update(Decision& d, const std::vector<std::vector<T>>& gradient) {
    const Floats before = master_;
    exact_ = master_;
    if (!d.skipped) {
      const AdamConstants<float> c(adam_scalars(options_.adam, d.lr, d.updates, d.clip_coef, d.loss_scale));
      for (const ParamSpec& spec : table_.params())
        if (!is_frozen(spec)) update_parameter(spec, gradient[static_cast<size_t>(spec.block)], c, d.updates);
    }
    const bool predict = fault_ == SerialFault::predicts_everything || rules_.read_late_only(d.step + 1);
    if (predict && !d.skipped) d.prediction = options_.prediction;
    versions_.push_back(fault_ == SerialFault::predicts_skips && d.skipped ? versions_.back()
                                                                           : publish(before, d.prediction));
  }

  void add_compact_planes() {
    outcome_.planes[Plane::master] = compact_.plane(StatePlane::master);
    outcome_.planes[Plane::exp_avg] = compact_.plane(StatePlane::moment1);
    outcome_.planes[Plane::exp_avg_sq] = compact_.plane(StatePlane::moment2);
    if (row_of(compact_.format().master).beside_weights) outcome_.planes[Plane::upper] = compact_.upper();
    if (compact_.format().moments != MomentFormat::int8) return;
    outcome_.planes[Plane::exp_avg_scale] = compact_.plane(StatePlane::scale1);
    outcome_.planes[Plane::exp_avg_sq_scale] = compact_.plane(StatePlane::scale2);
  }

  [[nodiscard]] StateValues values_of(const ParamSpec& spec) {
    const auto part = [&](Floats& plane) {
      return std::span(plane[static_cast<size_t>(spec.block)])
          .subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.numel));
    };
    return {part(master_), part(exp_avg_), part(exp_avg_sq_)};
  }
  /// What the states are once the format has rounded them.
  void recode(const ParamSpec& spec, uint32_t t) {
    compact_.encode(spec, values_of(spec), t);
    compact_.decode(spec, values_of(spec));
  }

  void update_parameter(const ParamSpec& spec, const std::vector<T>& gradient, const AdamConstants<float>& c,
                        int64_t t) {
    const auto block = static_cast<size_t>(spec.block), begin = static_cast<size_t>(spec.offset),
               count = static_cast<size_t>(spec.numel);
    for (size_t k = begin; k < begin + count; ++k) update_element(spec, k, to_float(gradient[k]), c);
    std::copy_n(master_[block].begin() + spec.offset, count, exact_[block].begin() + spec.offset);
    if (compact_.used()) recode(spec, static_cast<uint32_t>(t));
  }

  void update_element(const ParamSpec& spec, size_t k, float g, const AdamConstants<float>& c) {
    const auto block = static_cast<size_t>(spec.block);
    float &p = master_[block][k], &m = exp_avg_[block][k], &v = exp_avg_sq_[block][k];
    if (!spec.decay && fault_ != SerialFault::decays_norms)
      adam_update<Decay::none>(p, m, v, g, c);
    else if (options_.adam.decoupled)
      adam_update<Decay::decoupled>(p, m, v, g, c);
    else
      adam_update<Decay::l2>(p, m, v, g, c);
  }

  /// round16(p), or round16(p + prediction (p - p_before)) of the p that a format has not rounded.
  PlaneBits publish(const Floats& before, float prediction) const {
    PlaneBits bits;
    for (size_t block = 0; block < master_.size(); ++block) {
      std::vector<T> rounded;
      for (size_t k = 0; k < master_[block].size(); ++k) {
        const float p = exact_.empty() ? 0 : exact_[block][k];
        rounded.push_back(round_weight<T>(prediction == 0 ? master_[block][k]
                                                          : predicted(p, before[block][k], prediction)));
      }
      bits.push_back(bytes_of(rounded));
    }
    return bits;
  }

  const EngineOptions& options_;
  const SerialFault fault_;
  const ParamTable table_;
  CompactStates compact_;
  SerialModel model_;
  Rules rules_;
  Floats master_, exp_avg_, exp_avg_sq_, exact_;
  std::vector<PlaneBits> versions_;  ///< as published, all of them
  int64_t updates_ = 0;
  Outcome outcome_;
};

template <class T>
Outcome run_in(const EngineOptions& options, int64_t steps, SerialFault fault) {
  Loop<T> loop(options, fault);
  for (int64_t i = 0; i < steps; ++i) loop.step();
  return loop.outcome();
}

}  // namespace

Outcome run_serial(const EngineOptions& options, int64_t steps, SerialFault fault) {
  switch (options.dtype) {
    case DType::bf16:
      return run_in<bf16>(options, steps, fault);
    case DType::f16:
      return run_in<f16>(options, steps, fault);
    default:
      return run_in<float>(options, steps, fault);
  }
}

}  // namespace tandem::testing
