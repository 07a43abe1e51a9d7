#pragma once
// Who touched which memory last, and whether the next one is ordered after them.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/tensor.h"
#include "gpu/host/clock.h"

namespace tandem::gpu {

/// Two operations touch the same memory, at least one writes it, and nothing orders them: a wait is missing.
class OrderError : public InternalError {
 public:
  using InternalError::InternalError;
};

/// Bytes [begin, end) that an operation reads or writes.
struct Access {
  uintptr_t begin = 0, end = 0;
  bool write = false;
};

Access read_of(Tensor tensor);
Access write_of(Tensor tensor);

/// One event of an actor, in words: 'copy on stream "d2h" (range "backward layer 3")'.
struct Event {
  Actor actor = 0;
  uint64_t tick = 0;
  std::shared_ptr<const std::string> text;
};

/// Last write and last reads per address range. Not thread-safe.
class AccessMap {
 public:
  /// Throws OrderError, naming both events, if one of the accesses conflicts with an earlier one that
  /// `clock`, the clock of `event`, does not know of.
  void check(const Event& event, const Clock& clock, std::span<const Access> accesses) const;
  /// Remembers the accesses as the last ones.
  void note(const Event& event, const Clock& clock, std::span<const Access> accesses);
  /// Forgets a range: its memory is gone.
  void forget(uintptr_t begin, uintptr_t end);
  [[nodiscard]] size_t pieces() const { return pieces_.size(); }

 private:
  struct Piece {
    uintptr_t end = 0;
    std::optional<Event> write;
    std::vector<Event> reads;  ///< since the write; none that another one is ordered after
  };
  using Pieces = std::map<uintptr_t, Piece>;
  void check(const Event& event, const Clock& clock, const Access& access) const;
  void split(uintptr_t at);
  void fill_gaps(uintptr_t begin, uintptr_t end);

  Pieces pieces_;  ///< by begin; disjoint
};

}  // namespace tandem::gpu
