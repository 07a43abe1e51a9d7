#pragma once
// Versions and lag: the only place that knows about delay. Version k has consumed the gradients of steps 0 ..
// k-1; forward(i) reads version read(i). An upload of version k over version j of a block is a rendezvous of
// two events, enqueued by whichever comes second: the update of k is finished, and the last lease of j's last
// reader has been recorded. A streamed block is fetched out of the slot that holds its version; there the
// turn of k comes by the same rule, and j's slot is free then.
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
  /// What the ring is told of a block.
  struct BlockUse {
    Tensor weights;  ///< on the device, the one copy that forward reads; empty where they stream: then
                     ///< every pass fetches a version out of its slot
    int64_t trained =
        0;           ///< so many of the first elements are of a version; without any nothing is published
    int leases = 0;  ///< that one step takes
  };
  /// first_version: what the device (of streamed blocks a slot) holds at the start.
  UpdateRing(const StepPolicy& policy, Slots& slots, Device& device, Stream& upload,
             std::vector<BlockUse> uses, int64_t first_version, int64_t first_step);

  /// Starts a step; its lag must be known. Steps are entered in order.
  void enter(int64_t step);
  /// The version that the entered step reads.
  [[nodiscard]] int64_t version() const;
  /// Blocks until the upload of this version of the block is enqueued; returns its fence. Of a streamed
  /// block: until the version's turn has come; returns the fence after which it stands in its slot. The
  /// version must be version(); of a frozen block it is there from the start.
  [[nodiscard]] Fence arrival(BlockId block, int64_t version);
  /// Whether arrival() of version() would return at once.
  [[nodiscard]] bool has_arrived(BlockId block) const;
  /// One lease of the entered step ended; fence: all reads of what an upload of the next version overwrites
  /// (of a streamed block: of the slot). All of a block are on one stream. A lease may end in a destructor,
  /// which can't throw: so what goes wrong here poisons the device as well.
  void released(BlockId block, const Fence& reads_done);
  /// Version k of the block stands in its slot once the fence has passed. Uploads it, now or when its turn
  /// comes, or frees the slot if no step reads it.
  void publish(BlockId block, int64_t version, Fence finished);
  /// For a checkpoint or the end: every version up to `version` has been published. Throws if the device
  /// failed.
  void expect_quiet(int64_t version) const;
  /// Of a block that does not stream.
  [[nodiscard]] Tensor device_weights(BlockId block) const { return use(block).weights; }
  /// The part of them that is trained.
  [[nodiscard]] Tensor trained_weights(BlockId block) const {
    return streams(block) ? Tensor{} : use(block).weights.flat(0, use(block).trained);
  }

 private:
  struct Upload {
    int64_t version = 0;
    Fence finished;    ///< the version stands in its slot
    Fence last_reads;  ///< of the version that it overwrites
  };
  struct Block {
    int64_t current = 0;   ///< the version on the device, or the one that streams
    bool in_slot = false;  ///< a streamed block's current version still has its slot
    int64_t published = 0;
    int64_t arrived = 0;  ///< the newest version whose arrival is recorded
    std::map<int64_t, std::shared_ptr<FencePromise>> arrivals;
    std::optional<Upload> ready;  ///< finished, but an older version may still be read
    int released = 0;             ///< leases of the entered step that have ended
    int64_t last_step = 0;        ///< the last step all of whose leases have ended
    Fence last_reads;
  };
  [[nodiscard]] std::shared_ptr<FencePromise> promise(Block& block, BlockId id, int64_t version);
  /// Takes the upload whose time has come, if there is one. Called with the lock held.
  [[nodiscard]] std::optional<Upload> due(BlockId id, Block& block);
  void start(BlockId id, const Upload& upload);
  /// Gives the slot of a streamed version back once it is known that no step reads it again. With the lock
  /// held.
  void retire(BlockId id, Block& block);
  void end_lease(BlockId id, const Fence& reads_done);

  const StepPolicy& policy_;
  Slots& slots_;
  Device& device_;
  Stream& upload_;
  [[nodiscard]] const BlockUse& use(BlockId id) const { return uses_.at(static_cast<size_t>(id)); }
  [[nodiscard]] bool is_frozen(BlockId id) const { return use(id).trained == 0; }
  [[nodiscard]] bool streams(BlockId id) const { return use(id).weights.empty(); }
  const std::vector<BlockUse> uses_;
  mutable std::mutex mutex_;
  std::vector<Block> blocks_;
  int64_t step_;
};

}  // namespace tandem
