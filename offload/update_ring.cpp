#include "offload/update_ring.h"

#include <utility>

#include "offload/guarded.h"

namespace tandem {

UpdateRing::UpdateRing(const StepPolicy& policy, Slots& slots, Device& device, Stream& upload,
                       std::vector<BlockUse> uses, int64_t first_version, int64_t first_step)
    : policy_(policy),
      slots_(slots),
      device_(device),
      upload_(upload),
      uses_(std::move(uses)),
      blocks_(uses_.size()),
      step_(first_step - 1) {
  for (BlockId id = 0; id < std::ssize(blocks_); ++id) {
    Block& block = blocks_[static_cast<size_t>(id)];
    block.current = block.published = block.arrived = first_version;
    block.in_slot = streams(id) && !is_frozen(id);
    block.last_step = first_step - 1;
    promise(block, id, first_version)->fulfil(Fence{});
  }
}

void UpdateRing::enter(int64_t step) {
  const std::lock_guard lock(mutex_);
  ASSERT(step == step_ + 1, "step {} entered after step {}", step, step_);
  ASSERT(policy_.knows(step), "step {} entered before its lag is known", step);
  for (BlockId id = 0; id < std::ssize(blocks_); ++id) {
    Block& block = blocks_[static_cast<size_t>(id)];
    ASSERT(block.last_step == step_, "block {} still has leases of step {}", id, step_);
    block.released = 0;
    retire(id, block);
  }
  step_ = step;
}

int64_t UpdateRing::version() const {
  const std::lock_guard lock(mutex_);
  return policy_.read(step_);
}

std::shared_ptr<FencePromise> UpdateRing::promise(Block& block, BlockId id, int64_t version) {
  auto& arrival = block.arrivals[version];
  if (!arrival) arrival = device_.promise(fmt::format("upload of version {} of block {}", version, id));
  return arrival;
}

Fence UpdateRing::arrival(BlockId id, int64_t version) {
  std::shared_ptr<FencePromise> arrival;
  {
    const std::lock_guard lock(mutex_);
    ASSERT(version == policy_.read(step_),
           "version {} of block {} acquired in step {}, which reads version {}", version, id, step_,
           policy_.read(step_));
    if (is_frozen(id)) return {};
    Block& block = blocks_.at(static_cast<size_t>(id));
    arrival = promise(block, id, version);
    block.arrivals.erase(block.arrivals.begin(), block.arrivals.find(version));
  }
  return arrival->recorded();
}

bool UpdateRing::has_arrived(BlockId id) const {
  const std::lock_guard lock(mutex_);
  return is_frozen(id) || blocks_.at(static_cast<size_t>(id)).arrived == policy_.read(step_);
}

void UpdateRing::released(BlockId id, const Fence& reads_done) {
  guarded(device_, [&] { end_lease(id, reads_done); });
}

void UpdateRing::end_lease(BlockId id, const Fence& reads_done) {
  std::optional<Upload> upload;
  {
    const std::lock_guard lock(mutex_);
    Block& block = blocks_.at(static_cast<size_t>(id));
    ASSERT(block.released < use(id).leases, "block {} leased more than {} times in step {}", id,
           use(id).leases, step_);
    if (++block.released < use(id).leases) return;
    block.last_step = step_;
    block.last_reads = reads_done;
    retire(id, block);
    upload = due(id, block);
  }
  if (upload) start(id, *upload);
}

void UpdateRing::publish(BlockId id, int64_t version, Fence finished) {
  std::optional<Upload> upload;
  bool read = true;
  {
    const std::lock_guard lock(mutex_);
    Block& block = blocks_.at(static_cast<size_t>(id));
    ASSERT(version == block.published + 1, "version {} of block {} published after version {}", version, id,
           block.published);
    block.published = version;
    retire(id, block);
    read = policy_.is_read(version);
    if (read) {
      ASSERT(!block.ready, "version {} of block {} has not been uploaded before version {}",
             block.ready->version, id, version);
      block.ready = Upload{version, finished, {}};
      upload = due(id, block);
    }
  }
  if (!read) slots_.release(id, version, std::move(finished));
  if (upload) start(id, *upload);
}

void UpdateRing::retire(BlockId id, Block& block) {
  if (!block.in_slot || !policy_.knows_last_reader(block.current) ||
      policy_.last_reader(block.current) > block.last_step)
    return;
  slots_.release(id, block.current, block.last_reads);
  block.in_slot = false;
}

std::optional<UpdateRing::Upload> UpdateRing::due(BlockId id, Block& block) {
  if (!block.ready || policy_.last_reader(block.current) > block.last_step) return std::nullopt;
  block.current = block.ready->version;
  block.in_slot = streams(id);
  block.ready->last_reads = block.last_reads;
  return std::exchange(block.ready, std::nullopt);
}

/// Outside the lock: an enqueue may run other work of this thread first, which may publish.
void UpdateRing::start(BlockId id, const Upload& upload) {
  Fence arrived = upload.finished;
  if (!streams(id)) {
    upload_.range(fmt::format("version {} of block {}", upload.version, id));
    upload_.wait(upload.finished);
    upload_.wait(upload.last_reads);
    upload_.copy(trained_weights(id), slots_.weights(id, upload.version));
    arrived = upload_.record();
    slots_.release(id, upload.version, arrived);
  }
  std::shared_ptr<FencePromise> arrival;
  {
    const std::lock_guard lock(mutex_);
    Block& block = blocks_[static_cast<size_t>(id)];
    block.arrived = upload.version;
    arrival = promise(block, id, upload.version);
  }
  arrival->fulfil(arrived);
}

void UpdateRing::expect_quiet(int64_t version) const {
  device_.check();
  const std::lock_guard lock(mutex_);
  for (BlockId id = 0; id < std::ssize(blocks_); ++id)
    ASSERT(is_frozen(id) || blocks_[static_cast<size_t>(id)].published == version,
           "block {} stands at version {} where {} was expected", id,
           blocks_[static_cast<size_t>(id)].published, version);
}

}  // namespace tandem
