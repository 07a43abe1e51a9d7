#include "core/data/data_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/data/permutation.h"
#include "tests/core/expect_error.h"
#include "tests/core/temporary_folder.h"

namespace tandem {
namespace {

std::vector<uint64_t> permutation(uint64_t size, uint64_t seed, uint64_t epoch) {
  std::vector<uint64_t> values(size);
  for (uint64_t i = 0; i < size; ++i) values[i] = permuted(i, size, seed, epoch);
  return values;
}

bool is_bijection(std::vector<uint64_t> values) {
  std::sort(values.begin(), values.end());
  for (uint64_t i = 0; i < values.size(); ++i)
    if (values[i] != i) return false;
  return true;
}

/// A file of uint16 tokens first, first + 1, ...
std::string counting(uint64_t first, uint64_t count) {
  std::string bytes;
  for (uint64_t i = 0; i < count; ++i) bytes += bytes_of(static_cast<uint16_t>(first + i));
  return bytes;
}

TokenFile open(const std::string& path) { return TokenFile(path, TokenFormat::nanogpt, 65536); }

/// Two files, sequence length 4: 10 tokens (samples 0 and 1; the tenth token is in none) and 17 (samples 2 to
/// 5).
struct TwoFiles {
  TemporaryFolder folder;
  SampleSet set{make(), 4};
  std::vector<TokenFile> make() const {
    std::vector<TokenFile> files;
    files.push_back(open(folder.write("a", counting(100, 10))));
    files.push_back(open(folder.write("b", counting(200, 17))));
    return files;
  }
};

std::vector<int32_t> window(const SampleSet& set, uint64_t sample) {
  std::vector<int32_t> tokens(static_cast<size_t>(set.sequence_length()) + 1);
  set.read(sample, tokens);
  return tokens;
}

TEST(Tokens, PermutationIsABijectionForEverySize) {
  for (uint64_t size = 1; size <= 130; ++size) EXPECT_TRUE(is_bijection(permutation(size, 7, size))) << size;
  for (const uint64_t size : {255, 256, 257, 1000, 4095, 4096, 4097, 65537})
    EXPECT_TRUE(is_bijection(permutation(size, 1, 0))) << size;
}

TEST(Tokens, PermutationDiffersByEpochAndSeedAndIsStable) {
  const auto base = permutation(1000, 1, 0);
  EXPECT_EQ(permutation(1000, 1, 0), base);
  // Two independent permutations agree in 1 place on average; 12 or more have a probability below 1e-9
  // (Poisson).
  const auto agreements = [&](const std::vector<uint64_t>& other) {
    int equal = 0;
    for (size_t i = 0; i < base.size(); ++i) equal += other[i] == base[i] ? 1 : 0;
    return equal;
  };
  EXPECT_LT(agreements(permutation(1000, 1, 1)), 12);
  EXPECT_LT(agreements(permutation(1000, 2, 0)), 12);
  EXPECT_LT(agreements(permutation(1000, 1, uint64_t{1} << 32)), 12);
  EXPECT_LT(agreements(permutation(1000, 1 + (uint64_t{1} << 32), 0)), 12);
  std::vector<uint64_t> identity(1000);
  std::iota(identity.begin(), identity.end(), 0);
  EXPECT_LT(agreements(identity), 12);
}

/// Over 4000 epochs each of the 9 (place, value) pairs of size 3, 25 of 5 and 100 of 10 comes 4000 / size
/// times on average; the standard deviation is below sqrt(4000 / size). 6 of them are passed with a
/// probability below 1e-7.
TEST(Tokens, PermutationIsUniformOverEpochs) {
  for (const uint64_t size : {3, 5, 10}) {
    std::map<std::pair<uint64_t, uint64_t>, int> seen;
    for (uint64_t epoch = 0; epoch < 4000; ++epoch)
      for (uint64_t i = 0; i < size; ++i) ++seen[{i, permuted(i, size, 5, epoch)}];
    const double mean = 4000.0 / static_cast<double>(size);
    ASSERT_EQ(seen.size(), size * size);
    for (const auto& [pair, count] : seen)
      EXPECT_NEAR(count, mean, 6 * std::sqrt(mean)) << pair.first << " -> " << pair.second << " of " << size;
  }
}

/// All 24 orders of 4 samples: 10000 / 24 = 417 times each, standard deviation 20.
TEST(Tokens, PermutationReachesEveryOrderEquallyOften) {
  std::map<std::vector<uint64_t>, int> seen;
  for (uint64_t epoch = 0; epoch < 10000; ++epoch) ++seen[permutation(4, 3, epoch)];
  EXPECT_EQ(seen.size(), 24u);
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, 10000.0 / 24, 6 * 20.0);
}

TEST(Tokens, PermutationOfHugeSizesStaysInside) {
  for (const uint64_t size : {uint64_t{1} << 40, (uint64_t{1} << 40) + 1, uint64_t{1} << 62}) {
    std::set<uint64_t> values;
    for (uint64_t i = 0; i < 100; ++i) {
      const uint64_t value = permuted(size - 1 - i, size, 1, 2);
      EXPECT_LT(value, size);
      values.insert(value);
    }
    EXPECT_EQ(values.size(), 100u);
  }
}

TEST(Tokens, SamplesAreNumberedOverFilesAndNeverCrossThem) {
  const TwoFiles two;
  ASSERT_EQ(two.set.size(), 6u);
  EXPECT_EQ(window(two.set, 0), (std::vector<int32_t>{100, 101, 102, 103, 104}));
  EXPECT_EQ(window(two.set, 1), (std::vector<int32_t>{104, 105, 106, 107, 108}));
  EXPECT_EQ(window(two.set, 2), (std::vector<int32_t>{200, 201, 202, 203, 204}));
  EXPECT_EQ(window(two.set, 5), (std::vector<int32_t>{212, 213, 214, 215, 216}));
}

TEST(Tokens, FileWithoutOneWholeSampleIsNamed) {
  const TemporaryFolder folder;
  const auto set_of = [&](uint64_t tokens) {
    std::vector<TokenFile> files;
    files.push_back(open(folder.write("long", counting(0, 50))));
    files.push_back(open(folder.write("short", counting(0, tokens))));
    return SampleSet(std::move(files), 8).size();
  };
  EXPECT_EQ(set_of(9), 6u + 1u);
  expect_error(Status::failed, {"8 tokens, but one sample needs 9", "short"}, [&] { set_of(8); });
}

TEST(Tokens, BatchHoldsTokensAndTheirSuccessors) {
  const TwoFiles two;
  const DataLoader loader(two.set, {0, 6}, std::nullopt);
  std::vector<int32_t> tokens(8), targets(8);
  loader.fill(1, Tensor(tokens.data(), DType::i32, {2, 4}), Tensor(targets.data(), DType::i32, {2, 4}));
  EXPECT_EQ(tokens, (std::vector<int32_t>{104, 105, 106, 107, 200, 201, 202, 203}));
  EXPECT_EQ(targets, (std::vector<int32_t>{105, 106, 107, 108, 201, 202, 203, 204}));
}

TEST(Tokens, UnshuffledRunRepeatsFileOrder) {
  const TwoFiles two;
  const DataLoader loader(two.set, {0, 6}, std::nullopt);
  for (uint64_t k = 0; k < 20; ++k) EXPECT_EQ(loader.sample_at(k), k % 6);
}

/// Batches of 4 over epochs of 6: the second batch holds the end of one epoch and the start of the next.
TEST(Tokens, NothingIsDroppedOrSeenTwiceAcrossEpochEnds) {
  const TwoFiles two;
  const DataLoader loader(two.set, {0, 6}, 1);
  std::vector<int32_t> first_tokens;
  for (uint64_t k = 0; k < 24; k += 4) {
    std::vector<int32_t> tokens(16), targets(16);
    loader.fill(k, Tensor(tokens.data(), DType::i32, {4, 4}), Tensor(targets.data(), DType::i32, {4, 4}));
    for (size_t b = 0; b < 4; ++b) first_tokens.push_back(tokens[b * 4]);
  }
  const std::set<int32_t> all{100, 104, 200, 204, 208, 212};
  for (size_t epoch = 0; epoch < 4; ++epoch) {
    const auto begin = first_tokens.begin() + static_cast<std::ptrdiff_t>(epoch * 6);
    EXPECT_EQ(std::set<int32_t>(begin, begin + 6), all) << epoch;
  }
  EXPECT_FALSE(std::equal(first_tokens.begin(), first_tokens.begin() + 6, first_tokens.begin() + 6));
}

TEST(Tokens, SplitKeepsTheLastShareInFileOrder) {
  const TwoFiles two;
  const auto parts = [&](double share) {
    const DataSplit made = split(two.set, share);
    EXPECT_EQ(made.train.begin, 0u);
    EXPECT_EQ(made.eval.begin, made.train.count);
    EXPECT_EQ(made.train.count + made.eval.count, 6u);
    return made.eval.count;
  };
  EXPECT_EQ(parts(0), 0u);
  EXPECT_EQ(parts(0.001), 1u);
  EXPECT_EQ(parts(0.3), 2u);  // 1.8
  EXPECT_EQ(parts(0.5), 3u);
  const DataSplit made = split(two.set, 0.5);
  const DataLoader train(two.set, made.train, 1), eval(two.set, made.eval, std::nullopt);
  for (uint64_t k = 0; k < 30; ++k) EXPECT_LT(train.sample_at(k), 3u);
  for (uint64_t k = 0; k < 3; ++k) EXPECT_EQ(eval.sample_at(k), 3 + k);
}

TEST(Tokens, SplitThatLeavesNothingToTrainOnIsRefused) {
  const TemporaryFolder folder;
  std::vector<TokenFile> files;
  files.push_back(open(folder.write("one", counting(0, 9))));
  const SampleSet set(std::move(files), 8);
  expect_error(Status::failed, {"eval_split 0.1 of 1 sample(s) leaves none to train on", "one"},
               [&] { split(set, 0.1); });
}

}  // namespace
}  // namespace tandem
