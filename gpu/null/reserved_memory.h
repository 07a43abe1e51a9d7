#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/base/tensor.h"
#include "core/device/device.h"
#include "core/device/memory.h"

namespace tandem::gpu {

/// Whether a reservation may be read and written, or has an address alone. What is written takes memory.
enum class Touch : uint8_t { never, allowed };

/// Memory of a device and its host that is there by address only: reservations, counted by scope as the real
/// allocators count. Touching one ends the program (SIGSEGV), unless it was asked for with Touch::allowed.
/// Not thread-safe. Buffers and pins must end before this.
class ReservedMemory {
 public:
  enum class Tier : uint8_t { device, host };
  ReservedMemory() = default;
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  /// Error(does_not_fit) if the system has no address space for it (ulimit -v). 0 bytes: an empty buffer.
  [[nodiscard]] Buffer reserve(Tier tier, size_t bytes, std::string_view scope, Touch touch);
  /// From now on, until the pin ends, the range of the host's counts as pinned under its scope.
  [[nodiscard]] Pin pin(std::span<std::byte> host);

  [[nodiscard]] const MemoryCounters& device() const { return device_; }
  /// All of the host's, the pinned included.
  [[nodiscard]] const MemoryCounters& host() const { return host_; }
  [[nodiscard]] const MemoryCounters& pinned() const { return pinned_; }

  /// Where the tensor lies. InternalError, naming `what`, if it doesn't lie in one live reservation.
  [[nodiscard]] Tier tier_of(Tensor tensor, std::string_view what) const;
  [[nodiscard]] bool is_pinned(Tensor tensor) const;

 private:
  class Reservation;
  class Registration;
  struct Range {
    size_t bytes = 0;
    Tier tier = Tier::device;
    std::string scope;
  };
  using Ranges = std::map<const std::byte*, Range>;  ///< by begin; disjoint
  /// The range that holds these bytes; null if none does.
  static const Range* holder(const Ranges& ranges, const std::byte* begin, size_t bytes);
  MemoryCounters& counters(Tier tier) { return tier == Tier::device ? device_ : host_; }

  MemoryCounters device_, host_, pinned_;
  Ranges reserved_, pins_;
};

/// The host memory beside a null device.
class NullMemory final : public HostMemory {
 public:
  /// written: the scopes that a caller fills by itself, not through streams, lanes or workers. memory must
  /// outlive it.
  NullMemory(ReservedMemory& memory, std::span<const std::string_view> written)
      : memory_(memory), written_(written) {}
  [[nodiscard]] Buffer allocate(size_t bytes, std::string_view scope) override;
  [[nodiscard]] const MemoryCounters& counters() const override { return memory_.host(); }

 private:
  ReservedMemory& memory_;
  const std::span<const std::string_view> written_;
};

}  // namespace tandem::gpu
