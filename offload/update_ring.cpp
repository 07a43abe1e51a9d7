#include "offload/update_ring.h"

#include <utility>

#include "offload/guarded.h"

namespace tandem {

UpdateRing::UpdateRing(const StepPolicy& policy, Slots& slots, Device& device, Stream& upload,
                       std::vector<Tensor> device_weights, const std::vector<int64_t>& trained,
                       std::vector<int> uses, int64_t first_version, int64_t first_step, Fence arrived)
    : policy_(policy),
      slots_(slots),
      device_(device),
      upload_(upload),
      weights_(std::move(device_weights)),
      uses_(std::move(uses)),
      blocks_(weights_.size()),
      arrived_(std::move(arrived)),
      step_(first_step - 1) {
  for (size_t id = 0; id < blocks_.size(); ++id) {
    trained_.push_back(weights_[id].flat(0, trained.at(id)));
    Block& block = blocks_[id];
    block.on_device = block.published = first_version;
    block.last_step = first_step - 1;
    promise(block, static_cast<BlockId>(id), first_version)->fulfil(arrived_);
  }
}

void UpdateRing::enter(int64_t step) {
  const std::lock_guard lock(mutex_);
  ASSERT(step == step_ + 1, "step {} entered after step {}", step, step_);
  for (size_t id = 0; id < blocks_.size(); ++id) {
    ASSERT(blocks_[id].last_step == step_, "block {} still has leases of step {}", id, step_);
    blocks_[id].released = 0;
  }
  step_ = step;
  ASSERT(policy_.knows(step), "step {} entered before its lag is known", step);
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
    if (is_frozen(static_cast<size_t>(id))) return arrived_;
    Block& block = blocks_.at(static_cast<size_t>(id));
    arrival = promise(block, id, version);
    block.arrivals.erase(block.arrivals.begin(), block.arrivals.find(version));
  }
  return arrival->recorded();
}

void UpdateRing::released(BlockId id, const Fence& reads_done) {
  guarded(device_, [&] { end_lease(id, reads_done); });
}

void UpdateRing::end_lease(BlockId id, const Fence& reads_done) {
  std::optional<Upload> upload;
  {
    const std::lock_guard lock(mutex_);
    Block& block = blocks_.at(static_cast<size_t>(id));
    ASSERT(block.released < uses_.at(static_cast<size_t>(id)),
           "block {} leased more than {} times in step {}", id, uses_.at(static_cast<size_t>(id)), step_);
    if (++block.released < uses_[static_cast<size_t>(id)]) return;
    block.last_step = step_;
    block.last_reads = reads_done;
    upload = due(block);
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
    read = policy_.is_read(version);
    if (read) {
      ASSERT(!block.ready, "version {} of block {} has not been uploaded before version {}",
             block.ready->version, id, version);
      block.ready = Upload{version, finished, {}};
      upload = due(block);
    }
  }
  if (!read) slots_.release(id, version, std::move(finished));
  if (upload) start(id, *upload);
}

std::optional<UpdateRing::Upload> UpdateRing::due(Block& block) {
  if (!block.ready || policy_.last_reader(block.on_device) > block.last_step) return std::nullopt;
  block.on_device = block.ready->version;
  block.ready->last_reads = block.last_reads;
  return std::exchange(block.ready, std::nullopt);
}

/// Outside the lock: an enqueue may run other work of this thread first, which may publish.
void UpdateRing::start(BlockId id, const Upload& upload) {
  upload_.range(fmt::format("version {} of block {}", upload.version, id));
  upload_.wait(upload.finished);
  upload_.wait(upload.last_reads);
  upload_.copy(trained_weights(id), slots_.weights(id, upload.version));
  const Fence arrived = upload_.record();
  slots_.release(id, upload.version, arrived);
  std::shared_ptr<FencePromise> arrival;
  {
    const std::lock_guard lock(mutex_);
    arrival = promise(blocks_[static_cast<size_t>(id)], id, upload.version);
  }
  arrival->fulfil(arrived);
}

void UpdateRing::expect_quiet(int64_t version) const {
  device_.check();
  const std::lock_guard lock(mutex_);
  for (size_t id = 0; id < blocks_.size(); ++id)
    ASSERT(is_frozen(id) || blocks_[id].published == version,
           "block {} stands at version {} where {} was expected", id, blocks_[id].published, version);
}

}  // namespace tandem
