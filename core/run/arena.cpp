#include "core/run/arena.h"

#include <algorithm>

namespace tandem {

ArenaTensor& ArenaTensor::operator=(ArenaTensor&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(tensor_, other.tensor_);
  return *this;
}

ArenaTensor::~ArenaTensor() { reset(); }

void ArenaTensor::reset() { release_after(Fence{}); }

void ArenaTensor::release_after(Fence fence) {
  if (arena_ != nullptr) std::exchange(arena_, nullptr)->give_back(tensor_, std::move(fence));
  tensor_ = {};
}

Arena::Arena(Device& device, Buffer buffer, Stream& stream)
    : device_(device), buffer_(std::move(buffer)), stream_(stream) {
  if (buffer_.bytes() > 0) gaps_[0] = Gap{buffer_.bytes(), {}};
}

Arena::~Arena() = default;

ArenaTensor Arena::take(DType dtype, std::initializer_list<int64_t> shape) {
  size_t numel = 1;
  for (const int64_t dim : shape) numel *= static_cast<size_t>(dim);
  const size_t bytes = std::max(rounded(numel * size_of(dtype)), kAlign);
  const auto gap = std::find_if(gaps_.begin(), gaps_.end(),
                                [&](const auto& entry) { return entry.second.bytes >= bytes; });
  ASSERT(gap != gaps_.end(), "the arena of {} bytes has no room for {} beside {}", capacity(), bytes, used_);
  const size_t offset = gap->first;
  Gap rest = std::move(gap->second);
  gaps_.erase(gap);
  for (const Fence& fence : rest.fences) stream_.wait(fence);
  if (rest.bytes > bytes) gaps_[offset + bytes] = Gap{rest.bytes - bytes, {}};
  taken_[offset] = bytes;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  high_water_ = std::max(high_water_, offset + bytes);
  const Tensor tensor = buffer_.tensor(dtype, shape, offset);
  device_.scratch(stream_, tensor);
  return {*this, tensor};
}

void Arena::give_back(Tensor tensor, Fence fence) {
  const auto offset =
      static_cast<size_t>(static_cast<std::byte*>(tensor.raw()) - static_cast<std::byte*>(buffer_.raw()));
  const auto taken = taken_.find(offset);
  Gap gap{taken->second, {}};
  used_ -= taken->second;
  taken_.erase(taken);
  if (fence.state() != nullptr) gap.fences.push_back(std::move(fence));
  size_t begin = offset;
  const auto merge = [&](std::map<size_t, Gap>::iterator neighbour) {
    gap.bytes += neighbour->second.bytes;
    begin = std::min(begin, neighbour->first);
    std::move(neighbour->second.fences.begin(), neighbour->second.fences.end(),
              std::back_inserter(gap.fences));
    gaps_.erase(neighbour);
  };
  if (const auto after = gaps_.find(offset + gap.bytes); after != gaps_.end()) merge(after);
  auto before = gaps_.lower_bound(offset);
  if (before != gaps_.begin() && (--before)->first + before->second.bytes == offset) merge(before);
  gaps_[begin] = std::move(gap);
}

}  // namespace tandem
