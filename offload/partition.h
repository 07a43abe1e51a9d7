#pragma once
#include <cstdint>
#include <vector>

#include "core/model/params.h"

namespace tandem {

/// A range of one block that one rank owns: its optimizer states, and its part of a checkpoint.
struct Shard {
  BlockId block = 0;
  int64_t begin = 0, count = 0;
};

/// Which rank owns which elements: every element has exactly one owner. Ranges are multiples of 64 elements.
class Partition {
 public:
  Partition(const ParamTable& table, int ranks);
  [[nodiscard]] int ranks() const { return ranks_; }
  /// What the rank owns of the block; count 0 when it owns nothing of it.
  [[nodiscard]] Shard shard(BlockId block, int rank) const;

 private:
  int ranks_;
  std::vector<int64_t> numel_;
};

}  // namespace tandem
