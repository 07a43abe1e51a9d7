#pragma once
// Versions and lag: the only place that knows about delay. Version k has consumed the gradients of steps 0 ..
// k-1; forward(i) reads version read(i). An upload of version k over version j of a block is a rendezvous of
// two events, enqueued by whichever comes second: the update of k is finished, and the last lease of j's last
// reader has been recorded.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/device/device.h"
#include "core/model/params.h"
#include "offload/slots.h"
#include "offload/step_policy.h"

namespace tandem {

/// Thread-safe: the main thread enters, acquires and releases; optimizer tasks publish. Neither waits for the
/// other inside.
class UpdateRing {
 public:
  /// device_weights[block]: the one copy of the weights that forward reads. trained[block]: so many of their
  /// first elements are of a version; a block without any is never published. uses[block]: leases that one
  /// step takes of it. first: the version that the device holds (or will, once `arrived` has passed) at the
  /// start.
  UpdateRing(const StepPolicy& policy, Slots& slots, Device& device, Stream& upload,
             std::vector<Tensor> device_weights, const std::vector<int64_t>& trained, std::vector<int> uses,
             int64_t first_version, int64_t first_step, Fence arrived);

  /// Starts a step; its lag must be known. Steps are entered in order.
  void enter(int64_t step);
  /// The version that the entered step reads.
  [[nodiscard]] int64_t version() const;
  /// Blocks until the upload of this version of the block is enqueued; returns its fence (for a frozen block,
  /// that of the start). The version must be version().
  [[nodiscard]] Fence arrival(BlockId block, int64_t version);
  /// One lease of the entered step ended; fence: all reads of it. All leases of a block are on one stream. A
  /// lease may end in a destructor, which can't throw: so what goes wrong here poisons the device as well.
  void released(BlockId block, const Fence& reads_done);
  /// Version k of the block stands in its slot once the fence has passed. Uploads it, now or when its turn
  /// comes, or frees the slot if no step reads it.
  void publish(BlockId block, int64_t version, Fence finished);
  /// For a checkpoint or the end: every version up to `version` has been published. Throws if the device
  /// failed.
  void expect_quiet(int64_t version) const;
  [[nodiscard]] Tensor device_weights(BlockId block) const { return weights_.at(static_cast<size_t>(block)); }
  /// The part of them that is trained.
  [[nodiscard]] Tensor trained_weights(BlockId block) const {
    return trained_.at(static_cast<size_t>(block));
  }

 private:
  struct Upload {
    int64_t version = 0;
    Fence finished;    ///< the version stands in its slot
    Fence last_reads;  ///< of the version that it overwrites
  };
  struct Block {
    int64_t on_device = 0;
    int64_t published = 0;
    std::map<int64_t, std::shared_ptr<FencePromise>> arrivals;
    std::optional<Upload> ready;  ///< finished, but an older version may still be read
    int released = 0;             ///< leases of the entered step that have ended
    int64_t last_step = 0;        ///< the last step all of whose leases have ended
    Fence last_reads;
  };
  [[nodiscard]] std::shared_ptr<FencePromise> promise(Block& block, BlockId id, int64_t version);
  /// Takes the upload whose time has come, if there is one. Called with the lock held.
  [[nodiscard]] std::optional<Upload> due(Block& block);
  void start(BlockId id, const Upload& upload);
  void end_lease(BlockId id, const Fence& reads_done);

  const StepPolicy& policy_;
  Slots& slots_;
  Device& device_;
  Stream& upload_;
  [[nodiscard]] bool is_frozen(size_t id) const { return trained_[id].empty(); }
  std::vector<Tensor> weights_, trained_;
  std::vector<int> uses_;
  mutable std::mutex mutex_;
  std::vector<Block> blocks_;
  const Fence arrived_;
  int64_t step_;
};

}  // namespace tandem
