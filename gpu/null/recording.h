#pragma once
// What was asked of a null device: memory by tier and scope, and every operation of every stream and lane.
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device/device.h"
#include "core/io/hash.h"
#include "gpu/null/reserved_memory.h"

namespace tandem::gpu {

/// A stream or lane; an operation names it by its index in Recording::streams().
struct RecordedStream {
  std::string name;
  Purpose purpose = Purpose::other;
  bool lane = false;
  int64_t operations = 0;  ///< so far
};

/// A place in the list of a stream: behind its first so many operations since the start of the step; at or
/// below 0 in steps before it.
struct RecordedPlace {
  size_t stream = 0;
  int64_t operations = 0;
  auto operator<=>(const RecordedPlace&) const = default;
};

/// One operation as it was enqueued.
struct RecordedOperation {
  size_t stream = 0;
  std::string name;  ///< "linear_forward", "copy h2d" (d2h, d2d, h2h), "fill_zero", "adam model.layers.3"
  std::string range = {};  ///< what its stream was said to be doing ("forward layer 3", "update of step 4")
  size_t read_bytes = 0, written_bytes = 0;  ///< of the tensors that it declares
  double flops = 0;                          ///< of products and attention; 0 for all else
  /// What it waits for beyond what its stream has waited for already: places of other streams.
  std::vector<RecordedPlace> waits = {};
  /// The lane's task that enqueued it, as the place behind that; none: the main thread did.
  std::optional<RecordedPlace> task = {};
  /// What the main thread itself waited for since the operation that it enqueued before this one.
  std::vector<RecordedPlace> held = {};
};

/// Whether operations are kept, or only a digest of them (a step of many micro-batches has millions).
enum class Operations : uint8_t { listed, digested };

/// Not thread-safe: a null device runs on the calling thread alone. Must outlive device, streams, fences and
/// buffers.
class Recording {
 public:
  explicit Recording(Operations kept = Operations::listed) : kept_(kept) {}
  [[nodiscard]] ReservedMemory& memory() { return memory_; }
  [[nodiscard]] const ReservedMemory& memory() const { return memory_; }
  [[nodiscard]] const std::vector<RecordedStream>& streams() const { return streams_; }
  /// Operations and places count from here on.
  void begin_step();
  /// What has been enqueued since, in that order; empty if it is only digested.
  [[nodiscard]] const std::vector<RecordedOperation>& operations() const { return operations_; }
  /// A hash of the same, but for the ranges: these are for people, and may hold the step's number.
  [[nodiscard]] uint64_t digest() const { return digest_.digest(); }

  // ---- for the null device
  [[nodiscard]] size_t open(std::string_view name, Purpose purpose, bool lane);
  void add(RecordedOperation operation);
  /// The next operation of the stream waits for that place.
  void wait(size_t stream, RecordedPlace place);
  /// The main thread waits for that place.
  void hold(RecordedPlace place);
  /// The task in whose body the calling thread is; none: it is the main thread at its own work.
  [[nodiscard]] const std::optional<RecordedPlace>& task() const { return task_; }
  /// Says so; returns what was said before.
  std::optional<RecordedPlace> set_task(std::optional<RecordedPlace> task) {
    return std::exchange(task_, task);
  }
  [[nodiscard]] RecordedPlace here(size_t stream) const { return {stream, streams_.at(stream).operations}; }

 private:
  void digest(const RecordedOperation& operation);
  const Operations kept_;
  ReservedMemory memory_;
  std::vector<RecordedStream> streams_;
  std::vector<std::vector<RecordedPlace>> waits_;  ///< [stream]: of its next operation
  std::vector<std::vector<int64_t>> passed_;       ///< [stream][other]: how far it has waited for the other
  std::vector<int64_t> start_;                     ///< [stream]: operations before this step
  std::vector<int64_t> held_;                      ///< [stream]: how far the main thread has waited for it
  std::vector<RecordedPlace> holds_;               ///< of its next operation
  std::optional<RecordedPlace> task_;
  std::vector<RecordedOperation> operations_;
  Xxh3 digest_;
};

}  // namespace tandem::gpu
