#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "core/data/token_file.h"

namespace tandem {

/// The samples of some token files: windows of sequence_length + 1 tokens with stride sequence_length inside
/// one file, numbered over all files in the order given. What remains at a file's end is in no sample.
class SampleSet {
 public:
  /// Error(failed) for a file that holds no window.
  SampleSet(std::vector<TokenFile> files, int64_t sequence_length);
  [[nodiscard]] uint64_t size() const { return first_sample_.back(); }
  [[nodiscard]] int64_t sequence_length() const { return sequence_length_; }
  [[nodiscard]] const std::vector<TokenFile>& files() const { return files_; }
  /// Fills window, [sequence_length + 1].
  void read(uint64_t sample, std::span<int32_t> window) const;
  /// Sets those of a sample's targets, [sequence_length], to kNotTrained that its file's mask takes out of
  /// training.
  void mask(uint64_t sample, std::span<int32_t> targets) const;

 private:
  /// A file, and the number of the sample's first token in it.
  [[nodiscard]] std::pair<const TokenFile*, uint64_t> place_of(uint64_t sample) const;
  std::vector<TokenFile> files_;
  int64_t sequence_length_;
  std::vector<uint64_t> first_sample_;  ///< per file, then the number of all samples
};

/// Samples [begin, begin + count) of a set.
struct SampleRange {
  uint64_t begin = 0, count = 0;
};

/// What train reads and what evaluation reads of one set.
struct DataSplit {
  SampleRange train, eval;
};

/// The last share of the samples in file order is kept from training: eval_split * size, rounded to the
/// nearest whole sample, at least one if eval_split is above 0. Error(failed) if that leaves nothing to train
/// on.
DataSplit split(const SampleSet& set, double eval_split);

/// How many of the targets are trained.
int64_t trained_targets(std::span<const int32_t> targets);

/// Error(failed) where masks take every target of the samples out of training. Reads masks up to the first
/// target.
void check_targets(const SampleSet& set, SampleRange range);

/// The order of a run's samples. Sample k of the run is position k mod S of epoch k div S (S = samples per
/// epoch) in that epoch's permutation (see permutation.h), or in file order without shuffling. It has no
/// state: the cursor is k itself, so a resumed run continues with the number that it stored.
class DataLoader {
 public:
  /// The set must outlive the loader. No shuffle_seed: file order.
  DataLoader(const SampleSet& set, SampleRange range, std::optional<uint64_t> shuffle_seed);
  [[nodiscard]] uint64_t samples_per_epoch() const { return range_.count; }
  /// The number in the set of sample k of the run.
  [[nodiscard]] uint64_t sample_at(uint64_t k) const;
  /// Samples k, k + 1, ... of the run, as many as the tensors have rows: tokens and targets, both [B, T]
  /// int32 in host memory; targets[b, t] is the token that follows tokens[b, t], or kNotTrained.
  void fill(uint64_t k, Tensor tokens, Tensor targets) const;

 private:
  const SampleSet& set_;
  SampleRange range_;
  std::optional<uint64_t> shuffle_seed_;
};

}  // namespace tandem
