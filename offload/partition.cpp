#include "offload/partition.h"

#include <algorithm>

namespace tandem {

namespace {
constexpr int64_t kBoundary = 64;
}

Partition::Partition(const ParamTable& table, int ranks) : ranks_(ranks) {
  ASSERT(ranks >= 1, "{} ranks", ranks);
  for (const BlockSpec& block : table.blocks()) numel_.push_back(block.numel);
}

Shard Partition::shard(BlockId block, int rank) const {
  ASSERT(rank >= 0 && rank < ranks_, "rank {} of {}", rank, ranks_);
  const int64_t groups = numel_.at(static_cast<size_t>(block)) / kBoundary;
  const int64_t begin = groups * rank / ranks_, end = groups * (rank + 1) / ranks_;
  return {block, begin * kBoundary, (end - begin) * kBoundary};
}

}  // namespace tandem
