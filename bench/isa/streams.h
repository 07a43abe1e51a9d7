#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

/// One plane of a pass over blocks of 64 elements.
struct Stream64 {
  enum class Use : uint8_t { read, write, update };
  std::byte* data;
  size_t bytes;  ///< of a block; a multiple of 4
  Use use;
};

/// Moves the bytes of blocks [begin, end) as a pass does, block by block and plane by plane, with nothing to
/// compute: loads what is read, stores what is written. What is updated keeps its value. The number in the
/// name is the width of loads and stores in bytes.
void move_streams_16(const std::vector<Stream64>& streams, int64_t begin, int64_t end);
void move_streams_32(const std::vector<Stream64>& streams, int64_t begin, int64_t end);
void move_streams_64(const std::vector<Stream64>& streams, int64_t begin, int64_t end);

}  // namespace tandem
