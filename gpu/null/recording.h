#pragma once
// What was asked of a null device: memory by tier and scope, and every operation of every stream and lane.
#include <cstdint>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "gpu/null/reserved_memory.h"

namespace tandem::gpu {

/// A stream or lane; an operation names it by its index in Recording::streams().
struct RecordedStream {
  std::string name;
  Purpose purpose = Purpose::other;
  bool lane = false;
  int64_t operations = 0;  ///< so far
};

/// A place in the list of a stream: behind its first so many operations.
struct RecordedPlace {
  size_t stream = 0;
  int64_t operations = 0;
  bool operator==(const RecordedPlace&) const = default;
};

/// One operation as it was enqueued.
struct RecordedOperation {
  size_t stream = 0;
  std::string name;   ///< "linear_forward", "copy h2d" (d2h, d2d, h2h), "fill_zero", "adam model.layers.3"
  std::string range;  ///< what its stream was said to be doing ("forward layer 3", "update of step 4")
  size_t read_bytes = 0, written_bytes = 0;  ///< of the tensors that it declares
  double flops = 0;                          ///< of products and attention; 0 for all else
  /// What it waits for beyond what its stream has waited for already: places of other streams.
  std::vector<RecordedPlace> waits;
};

/// Not thread-safe: a null device runs on the calling thread alone. Must outlive device, streams, fences and
/// buffers.
class Recording {
 public:
  [[nodiscard]] ReservedMemory& memory() { return memory_; }
  [[nodiscard]] const ReservedMemory& memory() const { return memory_; }
  [[nodiscard]] const std::vector<RecordedStream>& streams() const { return streams_; }
  /// The operations since the last call, in the order in which they were enqueued.
  [[nodiscard]] std::vector<RecordedOperation> take();

  // ---- for the null device
  [[nodiscard]] size_t open(std::string_view name, Purpose purpose, bool lane);
  void add(RecordedOperation operation);
  /// The next operation of the stream waits for that place.
  void wait(size_t stream, RecordedPlace place);
  [[nodiscard]] RecordedPlace here(size_t stream) const { return {stream, streams_.at(stream).operations}; }

 private:
  ReservedMemory memory_;
  std::vector<RecordedStream> streams_;
  std::vector<std::vector<RecordedPlace>> waits_;  ///< [stream]: of its next operation
  std::vector<std::vector<int64_t>> passed_;       ///< [stream][other]: how far it has waited for the other
  std::vector<RecordedOperation> operations_;
};

}  // namespace tandem::gpu
