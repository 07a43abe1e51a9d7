#pragma once
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// Header-only: g++ and nvcc; W is uint32_t or a SIMD batch of such words.
#include <cstdint>

#include "core/math/value_ops.h"

namespace tandem {

template <class W>
struct PhiloxWords {
  W x[4];
};
using Philox = PhiloxWords<uint32_t>;

/// Rounds over the counter x[0 .. 3], lowest word first.
template <int kRounds, class W>
TANDEM_HD PhiloxWords<W> philox_rounds(PhiloxWords<W> c, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const WideProduct<W> p0 = wide_product(c.x[0], 0xD2511F53u);
    const WideProduct<W> p1 = wide_product(c.x[2], 0xCD9E8D57u);
    c = {{p1.high ^ c.x[1] ^ W(k0), p1.low, p0.high ^ c.x[3] ^ W(k1), p0.low}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// Four 32-bit words from a 128-bit counter and a 64-bit key. The same inputs give the same words everywhere.
TANDEM_HD Philox philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  return philox_rounds<10, uint32_t>(
      {{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
        static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)}},
      key);
}

/// Whose random bits: those of one parameter in one update. Each of its elements has one word.
struct DrawKey {
  uint64_t seed = 0;
  uint32_t parameter = 0;
  uint32_t t = 0;  ///< of the update, from 1
};

/// Elements come in blocks of 64: word k of counter 16 * block + lane is that of element 64 * block + 16 * k
/// + lane, so that a batch of up to 16 words belongs to neighbours. The counter's upper half is (parameter,
/// t).
constexpr int64_t kDrawBlock = 64;
constexpr int64_t kDrawLanes = 16;
/// Seven rounds are the fewest that pass all of BigCrush (the paper's table 2); rounding asks for no more.
constexpr int kDrawRounds = 7;

/// The words of the four elements of `block` that belong to each of `lanes` (values in [0, 16)).
template <class W>
TANDEM_HD PhiloxWords<W> draw(const DrawKey& key, int64_t block, W lanes) {
  const uint64_t counter = static_cast<uint64_t>(block) * kDrawLanes;
  return philox_rounds<kDrawRounds, W>(
      {{lanes + W(static_cast<uint32_t>(counter)), W(static_cast<uint32_t>(counter >> 32)), W(key.parameter),
        W(key.t)}},
      key.seed);
}

}  // namespace tandem
