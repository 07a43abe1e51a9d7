#include "core/data/data_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/data/permutation.h"

namespace tandem {

SampleSet::SampleSet(std::vector<TokenFile> files, int64_t sequence_length)
    : files_(std::move(files)), sequence_length_(sequence_length), first_sample_{0} {
  ASSERT(!files_.empty() && sequence_length_ >= 1, "{} files, sequence length {}", files_.size(),
         sequence_length_);
  const auto stride = static_cast<uint64_t>(sequence_length_);
  for (const TokenFile& file : files_) {
    CHECK(file.tokens() > stride, Status::failed,
          fmt::format(
              "{} tokens, but one sample needs {} (sequence length {} and the target of its last token)",
              file.tokens(), stride + 1, stride),
          printable(file.file().path()), "use a longer file or a smaller data.sequence_length");
    first_sample_.push_back(first_sample_.back() + (file.tokens() - 1) / stride);
  }
}

std::pair<const TokenFile*, uint64_t> SampleSet::place_of(uint64_t sample) const {
  ASSERT(sample < size(), "sample {} of {}", sample, size());
  const auto next = std::upper_bound(first_sample_.begin(), first_sample_.end(), sample);
  const auto file = static_cast<size_t>(next - first_sample_.begin() - 1);
  return {&files_[file], (sample - first_sample_[file]) * static_cast<uint64_t>(sequence_length_)};
}

void SampleSet::read(uint64_t sample, std::span<int32_t> window) const {
  ASSERT(window.size() == static_cast<size_t>(sequence_length_) + 1, "window of {} for sequence length {}",
         window.size(), sequence_length_);
  const auto [file, first] = place_of(sample);
  file->read(first, window);
}

void SampleSet::mask(uint64_t sample, std::span<int32_t> targets) const {
  ASSERT(targets.size() == static_cast<size_t>(sequence_length_), "{} targets for sequence length {}",
         targets.size(), sequence_length_);
  const auto [file, first] = place_of(sample);
  file->mask(first + 1, targets);
}

DataSplit split(const SampleSet& set, double eval_split) {
  ASSERT(eval_split >= 0 && eval_split <= 0.5, "eval_split {}", eval_split);
  if (eval_split == 0) return {{0, set.size()}, {set.size(), 0}};
  const auto share = static_cast<uint64_t>(std::llround(static_cast<double>(set.size()) * eval_split));
  const uint64_t eval = std::max<uint64_t>(1, share);
  CHECK(eval < set.size(), Status::failed,
        fmt::format("data.eval_split {} of {} sample(s) leaves none to train on", eval_split, set.size()),
        printable(set.files().front().file().path()), "use more data or a smaller data.sequence_length");
  return {{0, set.size() - eval}, {set.size() - eval, eval}};
}

int64_t trained_targets(std::span<const int32_t> targets) {
  return std::ranges::count_if(targets, [](int32_t target) { return target != kNotTrained; });
}

void check_targets(const SampleSet& set, SampleRange range) {
  std::vector<int32_t> targets(static_cast<size_t>(set.sequence_length()));
  for (uint64_t sample = range.begin; sample < range.begin + range.count; ++sample) {
    set.mask(sample, targets);
    if (trained_targets(targets) > 0) return;
    std::ranges::fill(targets, 0);
  }
  throw Error(Status::failed,
              fmt::format("the masks take every target of {} sample(s) out of training", range.count),
              printable(set.files().front().file().path()),
              "use more data, or write the file with a mask that leaves something to train on");
}

DataLoader::DataLoader(const SampleSet& set, SampleRange range, std::optional<uint64_t> shuffle_seed)
    : set_(set), range_(range), shuffle_seed_(shuffle_seed) {
  ASSERT(range.count > 0 && range.begin <= set.size() && range.count <= set.size() - range.begin,
         "samples {}+{} of {}", range.begin, range.count, set.size());
}

uint64_t DataLoader::sample_at(uint64_t k) const {
  const uint64_t epoch = k / range_.count, position = k % range_.count;
  return range_.begin + (shuffle_seed_ ? permuted(position, range_.count, *shuffle_seed_, epoch) : position);
}

void DataLoader::fill(uint64_t k, Tensor tokens, Tensor targets) const {
  ASSERT(std::ranges::equal(tokens.shape(), targets.shape()) && tokens.rank() == 2 &&
             tokens.dim(1) == set_.sequence_length(),
         "tokens and targets must be [B, {}]", set_.sequence_length());
  const auto length = static_cast<size_t>(set_.sequence_length());
  std::vector<int32_t> window(length + 1);
  for (int64_t b = 0; b < tokens.dim(0); ++b) {
    const uint64_t sample = sample_at(k + static_cast<uint64_t>(b));
    set_.read(sample, window);
    std::memcpy(tokens.rows(b, 1).data<int32_t>(), window.data(), length * sizeof(int32_t));
    std::memcpy(targets.rows(b, 1).data<int32_t>(), window.data() + 1, length * sizeof(int32_t));
    set_.mask(sample, std::span(targets.rows(b, 1).data<int32_t>(), length));
  }
}

}  // namespace tandem
