#include "offload/trainer.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "cpu_adam/host_reduce.h"
#include "offload/grad_stream.h"
#include "offload/guarded.h"
#include "offload/host_activations.h"
#include "offload/param_store.h"
#include "offload/slots.h"
#include "offload/update_ring.h"
#include "offload/weight_memory.h"
#include "offload/weight_window.h"

namespace tandem {

namespace {

std::vector<UpdateRing::BlockUse> block_uses(const TrainSetup& setup, const ParamTable& table,
                                             const WeightMemory& weights) {
  std::vector<UpdateRing::BlockUse> uses;
  for (const BlockSpec& block : table.blocks())
    uses.push_back({weights.resident()[uses.size()], block.trained,
                    (block.forward_uses + block.backward_uses) * static_cast<int>(setup.groups())});
  return uses;
}

/// Device memory and its pinned twin on the host, cut into kStepSets equal sets.
struct Twin {
  Buffer device, host;
  Pin pin;
  Twin(Device& dev, HostMemory& memory, size_t bytes, const char* scope)
      : device(dev.allocate(bytes, scope)),
        host(memory.allocate(bytes, scope)),
        pin(dev.pin({static_cast<std::byte*>(host.raw()), host.bytes()})) {}
};

}  // namespace

class Trainer::Impl {
 public:
  Impl(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host, Workers& workers,
       const TrainState& start)
      : setup_(setup),
        table_(table),
        device_(device),
        host_(host),
        workers_(workers),
        plan_(plan_memory(setup, table)),
        weights_(setup, table, device, host),
        states_(setup_, table, device, host),
        batches_(device, host, plan_.host.at("batches"), "batches"),
        scalars_(device, host, plan_.host.at("scalars"), "scalars"),
        compute_(device.stream("compute", Purpose::compute, 1)),
        round_(device.stream("round_grad", Purpose::d2h)),
        d2h_(device.stream("d2h_grad", Purpose::d2h)),
        upload_(device.stream("h2d_upload", Purpose::h2d)),
        fetch_(device.stream("h2d_fetch", Purpose::h2d)),
        batch_(device.stream("h2d_batch", Purpose::h2d)),
        device_adam_(device.stream("device_adam", Purpose::adam)),
        lanes_(device.lanes(Optimizer::lane_names(setup_, table), Purpose::adam)),
        policy_(setup.policy, start.policy),
        slots_(states_.slots(), states_.slot_readers()),
        arena_(device, device.allocate(plan_.device.at("activations"), "activations"), *compute_),
        inputs_(setup.keep == Keep::input_offloaded
                    ? std::make_unique<HostActivations>(setup_, table, device, host)
                    : nullptr),
        grads_(setup_, table, device, slots_, *round_, *d2h_,
               [this](BlockId block, const Fence& landed) { optimizer_->landed(block, landed); }),
        model_(setup.arch, table, device, host, setup.dtype, setup.length, *compute_),
        start_(start.policy.step),
        next_(start.policy.step),
        known_until_(start.policy.step - 1) {
    ring_ = std::make_unique<UpdateRing>(policy_, slots_, device, *upload_,
                                         block_uses(setup_, table, weights_), policy_.read(start_), start_);
    auto feed = std::make_unique<RingFeed>(setup_, table, *ring_, slots_, weights_.frozen());
    source_ = std::make_unique<WeightWindow>(setup_, table, std::move(feed), *fetch_, weights_.window());
    for (BlockId block = 0; block < table.block_count(); ++block)
      if (!setup_.streams(block)) uploaded_bytes_ += ring_->trained_weights(block).bytes();
    optimizer_ =
        std::make_unique<Optimizer>(Optimizer::Parts{setup_, table, device, workers, lanes_, *device_adam_,
                                                     policy_, slots_, *ring_, states_},
                                    start.progress);
  }

  /// Work in flight refers to everything above, so the streams end first, the lanes before those that they
  /// enqueue on.
  ~Impl() {
    lanes_.clear();
    for (auto* stream : {&device_adam_, &compute_, &round_, &d2h_, &upload_, &fetch_, &batch_})
      stream->reset();
  }

  /// Masters and moments; the weights that the first forward reads; at lag 1 also the version after it,
  /// waiting for its turn. To be called once, before anything else.
  void load(PlaneSource& planes) {
    const int64_t current = policy_.read(start_);
    place_upper();
    PlaneMover mover = this->mover();
    mover.load_states(planes);
    for (BlockId block = 0; block < table_.block_count(); ++block) {
      const Weights frozen = frozen_weights(block), trained = first_weights(block);
      mover.load_frozen(planes, block, frozen.tensor, frozen.where);
      if (trained.tensor.empty()) continue;
      if (current == start_) {
        mover.round_master(block, trained.tensor, trained.where);
        if (states_.upper_in_slot(block)) slots_.release(block, start_, Fence{});  // nobody uploads it
        continue;
      }
      ASSERT(mover.load(planes, Plane::lagged, block, trained.tensor, trained.where),
             "no lagged weights for block {}", block);
      if (!states_.upper_in_slot(block)) load_next(planes, mover, block);
      ring_->publish(block, start_, Fence{});
    }
    last_end_ = compute_->record();
  }

  /// In the place of load(): takes and returns its staging.
  void load_nothing() {
    place_upper();
    (void)mover();
    for (BlockId block = 0; block < table_.block_count(); ++block) {
      (void)first_weights(block);
      if (states_.upper_in_slot(block)) slots_.release(block, start_, Fence{});
    }
    last_end_ = compute_->record();
  }

  [[nodiscard]] int64_t next_step() const { return next_; }

  void step(const StepTokens& batch) {
    enter();
    const int64_t version = ring_->version();
    device_.range("fetch tokens");
    const auto [batches, trained] = fetch(batch, setup_.micro_batches * setup_.micro_batch);
    device_.range(fmt::format("enqueue step {}", next_ + 1));
    optimizer_->begin(next_, trained);
    const Tensor numbers = scalar_set(scalars_.device);
    const auto [of_slices, losses] = parts_of(numbers);
    compute_->range("norms and losses");
    compute_->fill_zero(numbers);
    grads_.begin(next_, of_slices);
    const float grad_scale =
        trained == 0 ? 0.0f : static_cast<float>(policy_.scale(next_) / static_cast<double>(trained));
    for (int64_t g = 0; g < setup_.groups(); ++g) {
      const auto group = std::span(batches).subspan(static_cast<size_t>(g * setup_.group()),
                                                    static_cast<size_t>(setup_.group()));
      Activations kept =
          model_.forward(group, version, setup_.keep, *source_, arena_, *compute_, inputs_.get());
      model_.backward(group, std::move(kept), version, grad_scale, *source_, grads_, *compute_,
                      losses.flat(g * setup_.group(), setup_.group()));
    }
    finish_step();
  }

  std::optional<StepReport> take_report() {
    if (flights_.empty() || flights_.front().step > known_until_) return std::nullopt;
    const Flight flight = flights_.front();
    flights_.pop_front();
    StepReport report;
    report.decision = optimizer_->decision(flight.step);
    report.sums_before = optimizer_->sums(flight.step - 1);
    report.lag = flight.lag;
    report.times = compute_->times(flight.begin, flight.end);
    const Optimizer::Work work = optimizer_->work();
    report.adam_seconds = work.seconds - reported_.seconds;
    report.adam_parameters = work.parameters - reported_.parameters;
    reported_ = work;
    const size_t inputs = inputs_ ? inputs_->bytes_per_step() : 0;  // down in forward, up in backward
    report.d2h_bytes = grads_.bytes_per_step() + scalar_set(scalars_.device).bytes() + inputs;
    report.h2d_bytes = flight.h2d_bytes + inputs;
    return report;
  }

  void quiesce() {
    if (next_ > start_) decided_.at(next_ - 1).wait();
    for (const auto& lane : lanes_) lane->record().wait();
    for (Stream* stream : {device_adam_.get(), upload_.get(), fetch_.get(), batch_.get(), d2h_.get(),
                           round_.get(), compute_.get()})
      stream->record().wait();
    ring_->expect_quiet(next_);
    known_until_ = next_ - 1;
  }

  int64_t begin_evaluation() {
    enter();
    return ring_->version();
  }

  double evaluate(const StepTokens& sequences) {
    const int64_t count = static_cast<int64_t>(sequences.tokens.size()) / setup_.length;
    ASSERT(entered_ == next_, "evaluation without begin_evaluation()");
    ASSERT(count >= 1 && count <= setup_.micro_batch, "{} sequences in a micro-batch of {}", count,
           setup_.micro_batch);
    const std::vector<Batch> batches = fetch(sequences, count).first;
    const Tensor on_device = scalar_set(scalars_.device).flat(0, 1),
                 landed = scalar_set(scalars_.host).flat(0, 1);
    compute_->fill_zero(on_device);
    model_.evaluate(batches.front(), ring_->version(), *source_, arena_, *compute_, on_device);
    d2h_->wait(compute_->record());
    d2h_->copy(landed, on_device);
    d2h_->record().wait();
    return device_.read(Scalar{landed});
  }

  void finalize() {
    PlaneMover mover = this->mover();
    for (BlockId block = 0; block < table_.block_count(); ++block)
      if (const Weights weights = current_weights(block); !weights.tensor.empty())
        mover.round_master(block, weights.tensor, weights.where);
    source_->forget();
  }

  [[nodiscard]] TrainState state() const { return {policy_.state_before(next_), optimizer_->progress()}; }

  [[nodiscard]] bool has_plane(Plane plane) const {
    switch (plane) {
      case Plane::lagged:
        return policy_.lag(next_) == 1 && next_ > 0;
      case Plane::predicted:
        return next_ > start_ ? optimizer_->decision(next_ - 1).prediction > 0 : start_predicted_;
      case Plane::exp_avg_scale:
      case Plane::exp_avg_sq_scale:
        return setup_.states.moments == MomentFormat::int8;
      case Plane::upper:
        return row_of(setup_.states.master).beside_weights;
      default:
        return true;
    }
  }

  [[nodiscard]] StateFormat format(BlockId block) const { return setup_.format(block); }

  void begin_reading() { reader_.emplace(mover()); }
  void end_reading() { reader_.reset(); }

  void read_plane(Plane plane, BlockId block, Tensor out, int64_t first) {
    ASSERT(reader_.has_value(), "read_plane() outside begin_reading() and end_reading()");
    const BlockStates states = states_.at(block, slots_, next_);
    const Placement where = setup_.placement[static_cast<size_t>(block)];
    const auto read = [&](Tensor from, Placement place) {
      reader_->read(from.flat(first, out.numel()), place, out);
    };
    const int64_t trained = table_.block(block).trained;
    switch (plane) {
      case Plane::master:
        return read(states.master, where);
      case Plane::upper:
        return read(states.upper, where);
      case Plane::exp_avg:
        return read(states.exp_avg, where);
      case Plane::exp_avg_sq:
        return read(states.exp_avg_sq, where);
      case Plane::exp_avg_scale:
        return read(states.exp_avg_scale, where);
      case Plane::exp_avg_sq_scale:
        return read(states.exp_avg_sq_scale, where);
      case Plane::lagged:
        return read(current_weights(block).tensor, current_weights(block).where);
      case Plane::predicted:
        return read(slots_.weights(block, next_), where);
      case Plane::weights:
        if (first >= trained) {
          const Weights frozen = frozen_weights(block);
          return reader_->read(frozen.tensor.flat(first - trained, out.numel()), frozen.where, out);
        }
        return reader_->read_rounded(block, first, out);
    }
  }

  [[nodiscard]] size_t arena_peak() const { return arena_.peak(); }

 private:
  /// A step whose report has not been taken.
  struct Flight {
    int64_t step = 0;
    int lag = 0;
    Fence begin, end;
    size_t h2d_bytes = 0;
  };

  /// Some of a block's weights, and where they stand.
  struct Weights {
    Tensor tensor;
    Placement where = Placement::device;
  };
  /// Of the trained ones, where the first forward will read them; empty where nothing is trained.
  [[nodiscard]] Weights first_weights(BlockId block) {
    if (!setup_.streams(block) || table_.block(block).trained == 0)
      return {ring_->trained_weights(block), Placement::device};
    return {slots_.place(block, policy_.read(start_)), Placement::host};
  }
  /// Of the trained ones, what the next forward reads.
  [[nodiscard]] Weights current_weights(BlockId block) const {
    if (!setup_.streams(block) || table_.block(block).trained == 0)
      return {ring_->trained_weights(block), Placement::device};
    return {slots_.weights(block, policy_.read(next_)), Placement::host};
  }
  [[nodiscard]] Weights frozen_weights(BlockId block) const {
    if (setup_.streams(block)) return {weights_.frozen()[static_cast<size_t>(block)], Placement::host};
    const int64_t trained = table_.block(block).trained;
    return {ring_->device_weights(block).flat(trained, table_.block(block).numel - trained),
            Placement::device};
  }

  /// Of the version that the next step's gradients are added to.
  [[nodiscard]] PlaneMover mover() {
    return {setup_, table_, device_, host_, workers_, states_, slots_, next_, *upload_};
  }

  /// Makes the slots that hold `upper` those of the first version.
  void place_upper() {
    for (BlockId block = 0; block < table_.block_count(); ++block)
      if (states_.upper_in_slot(block)) (void)slots_.place(block, start_);
  }

  /// At lag 1: the version after the one that the next forward reads, as it was published. A run that does
  /// not predict publishes what it finds predicted as it is without.
  void load_next(PlaneSource& planes, PlaneMover& mover, BlockId block) {
    const Placement where = setup_.placement[static_cast<size_t>(block)];
    const Tensor slot = slots_.place(block, start_);
    start_predicted_ = setup_.prediction > 0 && mover.load(planes, Plane::predicted, block, slot, where);
    if (!start_predicted_) mover.round_master(block, slot, where);
  }

  /// Waits for what decides the next step's lag and scale, and enters it. Does nothing when that has been
  /// done.
  void enter() {
    if (entered_ == next_) return;
    device_.range(fmt::format("enter step {}", next_ + 1));
    const int64_t needed = policy_.waits_for(next_);
    if (needed >= start_) {
      decided_.at(needed).wait();
      known_until_ = std::max(known_until_, needed);
      decided_.erase(decided_.begin(), decided_.lower_bound(needed));
    }
    ring_->enter(next_);
    entered_ = next_;
    if (setup_.policy.schedule == Schedule::synchronous) wait_for_all();
  }

  /// `synchronous`: nothing of a step starts before the whole update of the step before it has arrived.
  void wait_for_all() {
    for (BlockId block = 0; block < table_.block_count(); ++block)
      compute_->wait(ring_->arrival(block, ring_->version()));
  }

  [[nodiscard]] Tensor scalar_set(const Buffer& buffer) const {
    const auto count = static_cast<int64_t>(buffer.bytes() / sizeof(double)) / kStepSets;
    return buffer.tensor(DType::f64, {count},
                         static_cast<size_t>(next_ % kStepSets * count) * sizeof(double));
  }

  [[nodiscard]] LandedScalars parts_of(Tensor set) const {
    const int64_t of_slices = set.numel() - setup_.micro_batches;
    return {set.flat(0, of_slices), set.flat(of_slices, setup_.micro_batches)};
  }

  /// The sequences on the device, cut into micro-batches; and the number of trained tokens.
  std::pair<std::vector<Batch>, int64_t> fetch(const StepTokens& in, int64_t sequences) {
    const int64_t count = sequences * setup_.length;
    ASSERT(static_cast<int64_t>(in.tokens.size()) == count && in.targets.size() == in.tokens.size(),
           "{} tokens and {} targets where {} were expected", in.tokens.size(), in.targets.size(), count);
    const int64_t set = setup_.tokens_per_step();
    const auto offset = static_cast<size_t>(next_ % kStepSets * 2 * set) * sizeof(int32_t);
    const auto staged = [&](const Buffer& buffer) { return buffer.tensor(DType::i32, {2, count}, offset); };
    const Tensor host = staged(batches_.host), device = staged(batches_.device);
    batch_->range("tokens");
    std::memcpy(host.raw(), in.tokens.data(), in.tokens.size_bytes());
    std::memcpy(host.rows(1, 1).raw(), in.targets.data(), in.targets.size_bytes());
    batch_->copy(device, host);
    compute_->wait(batch_->record());
    std::vector<Batch> batches;
    const int64_t rows = std::min(sequences, setup_.micro_batch);
    for (int64_t begin = 0; begin < sequences; begin += rows) {
      const auto cut = [&](int64_t row) {
        return device.rows(row, 1)
            .flat(begin * setup_.length, rows * setup_.length)
            .view({rows, setup_.length});
      };
      batches.push_back({cut(0), cut(1)});
    }
    return {batches,
            std::count_if(in.targets.begin(), in.targets.end(), [](int32_t target) { return target >= 0; })};
  }

  void finish_step() {
    const Fence end = compute_->record();
    const Tensor landed = scalar_set(scalars_.host);
    d2h_->range("norms and losses");
    d2h_->wait(end);
    d2h_->copy(landed, scalar_set(scalars_.device));
    decided_[next_] = optimizer_->finish(parts_of(landed), d2h_->record());
    const int64_t set_bytes = 2 * setup_.tokens_per_step() * 4;
    const bool uploaded = ring_->version() != last_version_;
    last_version_ = ring_->version();
    const size_t fetched = source_->fetched_bytes();
    flights_.push_back({next_, policy_.lag(next_), last_end_, end,
                        static_cast<size_t>(set_bytes) + (uploaded ? uploaded_bytes_ : 0) + fetched -
                            std::exchange(fetched_bytes_, fetched)});
    last_end_ = end;
    ++next_;
  }

  const TrainSetup setup_;
  const ParamTable& table_;
  Device& device_;
  HostMemory& host_;
  Workers& workers_;
  const MemoryPlan plan_;
  WeightMemory weights_;
  OptimizerStates states_;
  Twin batches_, scalars_;
  std::unique_ptr<Stream> compute_, round_, d2h_, upload_, fetch_, batch_, device_adam_;
  std::vector<std::unique_ptr<HostLane>> lanes_;
  StepPolicy policy_;
  Slots slots_;
  Arena arena_;
  std::unique_ptr<HostActivations> inputs_;
  GradStream grads_;
  Model model_;
  std::unique_ptr<UpdateRing> ring_;
  std::unique_ptr<WeightWindow> source_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<PlaneMover> reader_;
  const int64_t start_;
  int64_t next_, known_until_, entered_ = -1, last_version_ = -1;
  size_t uploaded_bytes_ = 0, fetched_bytes_ = 0;  ///< by a version's uploads; by all fetches so far
  bool start_predicted_ = false;
  std::map<int64_t, Fence> decided_;
  std::deque<Flight> flights_;
  Fence last_end_;
  Optimizer::Work reported_;
};

Trainer::Trainer(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host,
                 Workers& workers, const TrainState& start, PlaneSource& planes)
    : device_(device), impl_(guarded(device, [&] {
        auto impl = std::make_unique<Impl>(setup, table, device, host, workers, start);
        impl->load(planes);
        return impl;
      })) {}
Trainer::Trainer(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host,
                 Workers& workers)
    : device_(device), impl_(guarded(device, [&] {
        const TrainState fresh{StepPolicy::initial(setup.policy), {}};
        auto impl = std::make_unique<Impl>(setup, table, device, host, workers, fresh);
        impl->load_nothing();
        return impl;
      })) {}
Trainer::~Trainer() = default;

int64_t Trainer::next_step() const { return impl_->next_step(); }
void Trainer::step(const StepTokens& batch) {
  guarded(device_, [&] { impl_->step(batch); });
}
std::optional<StepReport> Trainer::take_report() {
  return guarded(device_, [&] { return impl_->take_report(); });
}
void Trainer::quiesce() {
  guarded(device_, [&] { impl_->quiesce(); });
}
int64_t Trainer::begin_evaluation() {
  return guarded(device_, [&] { return impl_->begin_evaluation(); });
}
double Trainer::evaluate(const StepTokens& sequences) {
  return guarded(device_, [&] { return impl_->evaluate(sequences); });
}
void Trainer::finalize() {
  guarded(device_, [&] { impl_->finalize(); });
}
TrainState Trainer::state() const {
  return guarded(device_, [&] { return impl_->state(); });
}
bool Trainer::has_plane(Plane plane) const {
  return guarded(device_, [&] { return impl_->has_plane(plane); });
}
StateFormat Trainer::format(BlockId block) const { return impl_->format(block); }
void Trainer::begin_reading() {
  guarded(device_, [&] { impl_->begin_reading(); });
}
void Trainer::read_plane(Plane plane, BlockId block, Tensor out, int64_t first) {
  guarded(device_, [&] { impl_->read_plane(plane, block, out, first); });
}
void Trainer::end_reading() { impl_->end_reading(); }
size_t Trainer::arena_peak() const { return impl_->arena_peak(); }

}  // namespace tandem
