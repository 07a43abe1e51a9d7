#pragma once
#include <cstdint>

namespace tandem {

/// Position -> value of a pseudo-random permutation of [0, size), chosen by (seed, epoch). O(1) memory, a few
/// hundred nanoseconds. position < size.
///
/// A Feistel network of 8 rounds over the smallest even number of bits that holds size, whose round function
/// is Philox(seed; half and round; epoch): a bijection of [0, 2^bits) whatever the round function. Values
/// outside [0, size) are put through again until one is inside ("cycle walking": Black and Rogaway, "Ciphers
/// with arbitrary finite domains", 2002), which keeps it a bijection; less than 4 passes on average.
uint64_t permuted(uint64_t position, uint64_t size, uint64_t seed, uint64_t epoch);

}  // namespace tandem
