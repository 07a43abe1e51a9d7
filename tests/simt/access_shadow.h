#pragma once
// Who touched each word of a memory, and when: finds two threads that touch one word, at least one of them
// writing, with no barrier between them.
#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::simt {

/// A thread of a launch, after `epoch` barriers of its block. Moments of other blocks are never ordered.
struct Moment {
  int64_t block = -1;  ///< -1: nobody
  int thread = 0;
  int64_t epoch = 0;
};

/// The other side of a race.
struct Race {
  Moment other;
  bool other_writes;
};

class AccessShadow {
 public:
  explicit AccessShadow(size_t words) : pages_((words + kPage - 1) / kPage) {}
  [[nodiscard]] bool written(size_t word) const {
    const std::vector<Word>& page = pages_[word / kPage];
    return !page.empty() && page[word % kPage].write.block >= 0;
  }
  /// Notes an access. Of the readers of a word the last two threads are remembered.
  std::optional<Race> touch(size_t word, const Moment& now, bool writes);

 private:
  struct Word {
    Moment write, read, earlier_read;
  };
  static constexpr size_t kPage = 512;
  std::vector<std::vector<Word>> pages_;  // empty until they are touched: a launch sees little of an arena
};

}  // namespace tandem::simt
