#pragma once
// The planes of a run (masters, moments, 16-bit weights) between a checkpoint's side, which is the host, and
// where they live.
#include "core/device/device.h"
#include "core/device/workers.h"
#include "core/model/weight_source.h"
#include "offload/optimizer_states.h"
#include "offload/setup.h"

namespace tandem {

/// One plane of one block, as checkpoints know it.
enum class Plane : uint8_t {
  master,            ///< as BlockStates hold it
  upper,             ///< bf16: the rest of split and ulp8 masters
  exp_avg,           ///< as BlockStates hold it
  exp_avg_sq,        ///< as BlockStates hold it
  weights,           ///< training dtype: the rounded master
  lagged,            ///< training dtype: what the next forward reads, at lag 1
  predicted,         ///< training dtype: the saved version as it was published, where it was predicted
  exp_avg_scale,     ///< bf16, one for each group of kStateGroup elements; with int8 moments only
  exp_avg_sq_scale,  ///< the same of exp_avg_sq
};

/// Where the planes of a run come from when it starts: a fresh model, or a checkpoint.
class PlaneSource {
 public:
  virtual ~PlaneSource() = default;
  /// Fills one of the block's planes of weights (training dtype), [trained elements] on the host; padding
  /// stays zero (out comes zeroed). False, with nothing written: there is no such plane.
  virtual bool read(Plane plane, BlockId block, Tensor out) = 0;
  /// The format of what read_state() gives of a parameter.
  [[nodiscard]] virtual StateFormat format(const ParamSpec& spec) const = 0;
  /// False: there are masters only, and moments are zero.
  [[nodiscard]] virtual bool has_moments() const = 0;
  /// Fills out with the bytes of a parameter's plane of states in that format, from element `first` of the
  /// parameter on (a multiple of kStateGroup for scales).
  virtual void read_state(Plane plane, const ParamSpec& spec, int64_t first, std::span<std::byte> out) = 0;
  /// Fills out with a frozen parameter's weights from `first` on, in fp32.
  virtual void read_frozen(const ParamSpec& spec, int64_t first, std::span<float> out) = 0;
};

/// Masters from a WeightSource, moments zero.
class FreshPlanes : public PlaneSource {
 public:
  explicit FreshPlanes(WeightSource& weights) : weights_(weights) {}
  bool read(Plane, BlockId, Tensor) override { return false; }
  [[nodiscard]] StateFormat format(const ParamSpec&) const override { return {}; }
  [[nodiscard]] bool has_moments() const override { return false; }
  void read_state(Plane plane, const ParamSpec& spec, int64_t first, std::span<std::byte> out) override;
  void read_frozen(const ParamSpec& spec, int64_t first, std::span<float> out) override {
    weights_.read(spec, first, out);
  }

 private:
  WeightSource& weights_;
};

/// Moves planes of the version that the masters stand at over a pinned buffer of staging_bytes() that lives
/// as long as this object does: make one, use it, drop it. Every call blocks until its data is there.
class PlaneMover {
 public:
  PlaneMover(const TrainSetup& setup, const ParamTable& table, Device& device, HostMemory& host,
             Workers& workers, const OptimizerStates& states, Slots& slots, int64_t version, Stream& stream);
  /// Masters and moments of every block from the source.
  void load_states(PlaneSource& source);
  /// A training-dtype plane into memory of either kind. False: the source has none. Overwrites the block's
  /// last slot where the states are on the host.
  bool load(PlaneSource& source, Plane plane, BlockId block, Tensor into, Placement where);
  /// The rounded weights of the block's frozen parameters, in either memory.
  void load_frozen(PlaneSource& source, BlockId block, Tensor into, Placement where);
  /// round_weights(master) into memory of either kind.
  void round_master(BlockId block, Tensor into, Placement where);
  /// Copies memory of either kind, any number of elements, to the host.
  void read(Tensor from, Placement where, Tensor out);
  /// out = round_weight(masters of the block from element `first` on), on the host.
  void read_rounded(BlockId block, int64_t first, Tensor out);

 private:
  void load_parameter(PlaneSource& source, const ParamSpec& spec);
  void convert(PlaneSource& source, const ParamSpec& spec, int64_t first, int64_t count);
  void upload_floats(Tensor plane, int64_t first, std::span<const float> values);
  [[nodiscard]] bool on_host(BlockId block) const {
    return setup_.placement.at(static_cast<size_t>(block)) == Placement::host;
  }
  void upload(Tensor into, Tensor staged);
  const TrainSetup& setup_;
  const ParamTable& table_;
  Device& device_;
  Workers& workers_;
  [[nodiscard]] BlockStates states(BlockId block) const { return states_.at(block, slots_, version_); }
  const OptimizerStates& states_;
  Slots& slots_;
  const int64_t version_;
  Stream& stream_;
  Buffer staging_;
  Pin pin_;
};

}  // namespace tandem
