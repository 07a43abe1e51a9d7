#include "tests/offload/engine_rig.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "gpu/backend.h"
#include "offload/choices.h"
#include "tests/offload/golden_weights.h"

namespace tandem::testing {

namespace {

const std::map<Plane, const char*>& plane_names() {
  static const std::map<Plane, const char*> names{{Plane::master, "master"},
                                                  {Plane::exp_avg, "exp_avg"},
                                                  {Plane::exp_avg_sq, "exp_avg_sq"},
                                                  {Plane::weights, "weights"},
                                                  {Plane::lagged, "lagged"},
                                                  {Plane::predicted, "predicted"},
                                                  {Plane::upper, "upper"},
                                                  {Plane::exp_avg_scale, "exp_avg_scale"},
                                                  {Plane::exp_avg_sq_scale, "exp_avg_sq_scale"}};
  return names;
}

class FilledWeights : public WeightSource {
 public:
  explicit FilledWeights(const EngineOptions& options) : options_(options) {}
  void read(const ParamSpec& spec, int64_t first, std::span<float> out) override {
    std::vector<float> whole(static_cast<size_t>(spec.numel));
    options_.fill ? options_.fill(spec, whole)
                  : golden::fill_weight(spec.name, static_cast<int>(spec.shape.size()), whole);
    std::copy_n(whole.begin() + first, out.size(), out.begin());
  }

 private:
  const EngineOptions& options_;
};

class SavedPlanes : public PlaneSource {
 public:
  SavedPlanes(const Saved& saved, DType dtype)
      : planes_(saved.planes), dtype_(dtype), formats_(saved.formats) {}
  bool read(Plane plane, BlockId block, Tensor out) override {
    const auto found = planes_.find(plane);
    if (found == planes_.end()) return false;
    const std::vector<std::byte>& bits = found->second.at(static_cast<size_t>(block));
    ASSERT(bits.size() == out.bytes(), "a plane of {} bytes read as {}", bits.size(), out.bytes());
    std::memcpy(out.raw(), bits.data(), bits.size());
    return true;
  }
  [[nodiscard]] StateFormat format(const ParamSpec& spec) const override {
    return formats_.at(static_cast<size_t>(spec.block));
  }
  [[nodiscard]] bool has_moments() const override { return true; }
  void read_state(Plane plane, const ParamSpec& spec, int64_t first, std::span<std::byte> out) override {
    const bool scales = plane == Plane::exp_avg_scale || plane == Plane::exp_avg_sq_scale;
    const StatePlane kind = scales                   ? StatePlane::scale1
                            : plane == Plane::master ? StatePlane::master
                                                     : StatePlane::moment1;
    const int64_t element = spec.offset + first;
    const size_t at = plane == Plane::upper ? static_cast<size_t>(element) * sizeof(bf16)
                                            : plane_bytes(format(spec), kind, element);
    std::memcpy(out.data(), planes_.at(plane).at(static_cast<size_t>(spec.block)).data() + at, out.size());
  }
  void read_frozen(const ParamSpec& spec, int64_t first, std::span<float> out) override {
    const std::byte* bits = planes_.at(Plane::weights).at(static_cast<size_t>(spec.block)).data();
    const auto widen = [&]<class T>(T value) {
      for (size_t i = 0; i < out.size(); ++i) {
        std::memcpy(&value, bits + (static_cast<size_t>(spec.offset + first) + i) * sizeof(T), sizeof(T));
        out[i] = to_float(value);
      }
    };
    dtype_ == DType::bf16 ? widen(bf16{}) : dtype_ == DType::f16 ? widen(f16{}) : widen(0.0f);
  }

 private:
  const std::map<Plane, PlaneBits>& planes_;
  const DType dtype_;
  const std::vector<StateFormat>& formats_;
};

std::unique_ptr<Device> open_device(const EngineOptions& options, Workers& workers) {
  if (options.open) return options.open(workers);
  return gpu::open("host", {&workers, kDeviceMemory, options.chaos_seed, options.check_order});
}

std::string plane_difference(const std::string& name, const PlaneBits& a, const PlaneBits& b) {
  if (a.size() != b.size()) return fmt::format("{}: {} and {} blocks", name, a.size(), b.size());
  for (size_t block = 0; block < a.size(); ++block) {
    if (a[block].size() != b[block].size()) return fmt::format("{} of block {}: sizes differ", name, block);
    for (size_t i = 0; i < a[block].size(); ++i)
      if (a[block][i] != b[block][i]) return fmt::format("{} of block {} from byte {} on", name, block, i);
  }
  return {};
}

std::string decision_difference(const Decision& a, const Decision& b) {
  const auto real = [&](const char* name, double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y) || (x != x && y != y)
               ? std::string{}
               : fmt::format("{} of step {}: {} and {}", name, a.step, x, y);
  };
  const auto whole = [&](const char* name, int64_t x, int64_t y) {
    return x == y ? std::string{} : fmt::format("{} of step {}: {} and {}", name, a.step, x, y);
  };
  for (const std::string& found :
       {whole("step", a.step, b.step), real("loss scale", a.loss_scale, b.loss_scale),
        real("loss", a.loss, b.loss), whole("tokens", a.tokens, b.tokens),
        whole("skip", a.skipped, b.skipped), real("norm", a.grad_norm, b.grad_norm),
        real("clip", a.clip_coef, b.clip_coef), real("lr", a.lr, b.lr),
        whole("updates", a.updates, b.updates), real("prediction", a.prediction, b.prediction)})
    if (!found.empty()) return found;
  return {};
}

}  // namespace

Arch tiny_arch(bool tied) {
  Arch arch;
  arch.vocab = 256;
  arch.hidden = 64;
  arch.intermediate = 128;
  arch.layers = 2;
  arch.heads = 4;
  arch.kv_heads = 2;
  arch.head_dim = 16;
  arch.max_positions = 128;
  arch.norm_eps = 1e-5;
  arch.tied = tied;
  return arch;
}

Arch gpt2_arch() {
  Arch arch = tiny_arch(true);
  arch.model_type = "gpt2";
  arch.naming = Naming::gpt2;
  arch.layer_norm = arch.learned_positions = arch.gelu = true;
  arch.qkv_bias = arch.o_bias = arch.mlp_bias = true;
  arch.kv_heads = arch.heads;
  return arch;
}

LossScaleConfig tight_loss_scale(DType dtype) {
  if (dtype == DType::f16) return {.initial_scale_power = 16, .hysteresis = 1};
  return {.fixed = 0x1p127};
}

EngineOptions rising_loss() {
  EngineOptions options;
  options.dtype = DType::bf16;
  options.prediction = 1;
  options.policy = {.schedule = Schedule::delayed, .warmup_steps = 3, .staleness_limit = 0.02};
  options.lr = [](int64_t n) { return n >= 22 && n < 25 ? 0.2 : 1e-3; };
  options.blank_steps = {12};
  return options;
}

TrainSetup setup_of(const EngineOptions& options, const ParamTable& table) {
  TrainSetup setup;
  setup.arch = options.arch;
  setup.dtype = options.dtype;
  setup.micro_batch = options.micro_batch;
  setup.length = options.length;
  setup.micro_batches = options.micro_batches;
  setup.order = options.order;
  setup.keep = options.keep;
  setup.policy = options.policy;
  setup.prediction = options.prediction;
  for (BlockId block = 0; block < table.block_count(); ++block) {
    const bool host = options.where == Where::host || (options.where == Where::mixed && block % 2 == 0);
    setup.placement.push_back(host ? Placement::host : Placement::device);
  }
  if (options.where == Where::half) setup.placement = place_by_ratio(table, 0.5);
  setup.adam = options.adam;
  setup.states = {options.masters, options.moments};
  setup.seed = options.seed;
  setup.lr = options.lr;
  setup.clip = options.clip;
  setup.on_nonfinite = options.on_nonfinite;
  setup.max_skipped_in_a_row = options.max_skipped_in_a_row;
  setup.layer_buckets = options.layer_buckets;
  setup.slice_elements = options.slice_elements;
  setup.window = options.window;
  return setup;
}

FormulaTokens::FormulaTokens(const EngineOptions& options, int64_t step) {
  const int64_t rows = options.micro_batches * options.micro_batch;
  const std::vector<int32_t> windows = golden::batch(static_cast<int>(step), rows, options.length);
  const bool lone = options.lone_target_steps.contains(step), blank = options.blank_steps.contains(step);
  const auto trained = [&](size_t target) {
    if (blank || lone) return lone && target == 0;
    return options.mask_every == 0 || (target + 1) % static_cast<size_t>(options.mask_every) != 0;
  };
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t t = 0; t < options.length; ++t) {
      const auto at = static_cast<size_t>(row * (options.length + 1) + t);
      tokens.push_back(windows[at]);
      targets.push_back(trained(targets.size()) ? windows[at + 1] : -100);
    }
}

std::string difference(const Outcome& a, const Outcome& b, const std::set<Plane>& what) {
  for (const auto& [plane, name] : plane_names()) {
    if (!what.empty() && !what.contains(plane)) continue;
    if (a.planes.contains(plane) != b.planes.contains(plane)) return fmt::format("only one has {}", name);
  }
  if (what.empty()) {
    if (a.decisions.size() != b.decisions.size())
      return fmt::format("{} and {} steps", a.decisions.size(), b.decisions.size());
    for (size_t i = 0; i < a.decisions.size(); ++i) {
      if (a.lags[i] != b.lags[i]) return fmt::format("lag of step {}: {} and {}", i, a.lags[i], b.lags[i]);
      const std::string found = decision_difference(a.decisions[i], b.decisions[i]);
      if (!found.empty()) return found;
    }
  }
  for (const auto& [plane, bits] : a.planes) {
    if (!what.empty() && !what.contains(plane)) continue;
    const std::string found = plane_difference(plane_names().at(plane), bits, b.planes.at(plane));
    if (!found.empty()) return found;
  }
  return {};
}

EngineRig::EngineRig(const EngineOptions& options, std::nullptr_t)
    : options_(options),
      table_(options.arch, options.no_decay, options.freeze),
      setup_(setup_of(options, table_)),
      workers_(make_workers(options.pool, options.threads,
                            options.machine ? *options.machine : discover_topology())),
      device_(open_device(options, *workers_)) {}

EngineRig::EngineRig(const EngineOptions& options) : EngineRig(options, nullptr) {
  FilledWeights weights(options_);
  FreshPlanes planes(weights);
  trainer_ = std::make_unique<Trainer>(setup_, table_, *device_, host_, *workers_,
                                       TrainState{StepPolicy::initial(setup_.policy), {}}, planes);
}

EngineRig::EngineRig(const EngineOptions& options, const Saved& saved) : EngineRig(options, nullptr) {
  SavedPlanes planes(saved, options.dtype);
  trainer_ = std::make_unique<Trainer>(setup_, table_, *device_, host_, *workers_, saved.state, planes);
}

EngineRig::~EngineRig() = default;

Saved EngineRig::save() {
  Saved saved{trainer_->state(), outcome().planes, {}};
  for (BlockId block = 0; block < table_.block_count(); ++block)
    saved.formats.push_back(setup_.format(block));
  return saved;
}

void EngineRig::run(int64_t steps) {
  for (int64_t i = 0; i < steps; ++i) {
    const FormulaTokens batch(options_, trainer_->next_step());
    trainer_->step(batch.view());
    take_reports();
  }
  trainer_->quiesce();
  take_reports();
}

void EngineRig::take_reports() {
  while (const std::optional<StepReport> report = trainer_->take_report()) reports_.push_back(*report);
}

PlaneBits EngineRig::plane(Plane plane) {
  PlaneBits bits;
  trainer_->begin_reading();
  for (BlockId block = 0; block < table_.block_count(); ++block) {
    const int64_t trained = table_.block(block).trained,
                  numel = plane == Plane::weights ? table_.block(block).numel : trained;
    const StateFormat format = setup_.format(block);
    const bool scales = plane == Plane::exp_avg_scale || plane == Plane::exp_avg_sq_scale;
    const bool absent = (scales && format.moments != MomentFormat::int8) ||
                        (plane == Plane::upper && !row_of(format.master).beside_weights);
    if (absent) {  // of a block whose states are on the device
      bits.emplace_back();
      continue;
    }
    const DType dtype = dtype_of(plane, format);
    const int64_t per = scales ? kStateGroup : 1;
    std::vector<std::byte>& bytes = bits.emplace_back(static_cast<size_t>(numel / per) * size_of(dtype));
    const Tensor all(bytes.data(), dtype, {numel / per});
    if (trained > 0) trainer_->read_plane(plane, block, all.flat(0, trained / per));
    if (numel > trained) trainer_->read_plane(plane, block, all.flat(trained, numel - trained), trained);
  }
  trainer_->end_reading();
  return bits;
}

DType EngineRig::dtype_of(Plane plane, StateFormat format) const {
  switch (plane) {
    case Plane::master:
      return master_dtype(format.master);
    case Plane::exp_avg:
    case Plane::exp_avg_sq:
      return moment_dtype(format.moments);
    case Plane::upper:
    case Plane::exp_avg_scale:
    case Plane::exp_avg_sq_scale:
      return DType::bf16;
    default:
      return setup_.dtype;
  }
}

Outcome EngineRig::outcome() {
  Outcome outcome;
  for (const auto& [plane, name] : plane_names())
    if (trainer_->has_plane(plane)) outcome.planes[plane] = this->plane(plane);
  for (const StepReport& report : reports_) {
    outcome.decisions.push_back(report.decision);
    outcome.lags.push_back(report.lag);
  }
  return outcome;
}

Outcome run_engine(const EngineOptions& options, int64_t steps) {
  EngineRig rig(options);
  rig.run(steps);
  return rig.outcome();
}

}  // namespace tandem::testing
