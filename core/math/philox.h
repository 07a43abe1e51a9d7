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

/// The words that a key adds to each round.
template <int kRounds, class W>
struct PhiloxKeys {
  W x[kRounds][2];
  TANDEM_HD explicit PhiloxKeys(uint64_t key) {
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < kRounds; ++round) {
      x[round][0] = W(k0);
      x[round][1] = W(k1);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
  }
};

/// Rounds over the counter x[0 .. 3], lowest word first.
template <int kRounds, class W>
TANDEM_HD PhiloxWords<W> philox_rounds(PhiloxWords<W> c, const PhiloxKeys<kRounds, W>& keys) {
  for (int round = 0; round < kRounds; ++round) {
    const WideProduct<W> p0 = wide_product(c.x[0], 0xD2511F53u);
    const WideProduct<W> p1 = wide_product(c.x[2], 0xCD9E8D57u);
    c = {{p1.high ^ c.x[1] ^ keys.x[round][0], p1.low, p0.high ^ c.x[3] ^ keys.x[round][1], p0.low}};
  }
  return c;
}

/// Four 32-bit words from a 128-bit counter and a 64-bit key. The same inputs give the same words everywhere.
TANDEM_HD Philox philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  return philox_rounds<10, uint32_t>(
      {{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
        static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)}},
      PhiloxKeys<10, uint32_t>(key));
}

/// Whose random bits: those of one parameter in one update. Each of its elements has 16 of them.
struct DrawKey {
  uint64_t seed = 0;
  uint32_t parameter = 0;
  uint32_t t = 0;  ///< of the update, from 1
};

/// Elements come in blocks of 64, which share the counters 8 * block + j, j in [0, 8): half h (0: the lower)
/// of word k of counter j is that of element 64 * block + 16 * k + 2 * j + h, so that a batch of up to 16
/// elements has its bits in one word of neighbouring counters. The counter's upper half is (parameter, t).
constexpr int64_t kDrawBlock = 64;
constexpr int64_t kDrawCounters = 8;
/// Seven rounds are the fewest that pass all of BigCrush (the paper's table 2); rounding asks for no more.
constexpr int kDrawRounds = 7;

/// The key, made ready for words of type W.
template <class W>
struct Draws {
  PhiloxKeys<kDrawRounds, W> keys;
  W parameter, t;
  TANDEM_HD explicit Draws(const DrawKey& key) : keys(key.seed), parameter(key.parameter), t(key.t) {}
};

/// The words of `block` that belong to each of `counters` (values j in [0, 8)).
template <class W>
TANDEM_HD PhiloxWords<W> draw(const Draws<W>& draws, int64_t block, W counters) {
  const uint64_t counter = static_cast<uint64_t>(block) * kDrawCounters;
  return philox_rounds({{counters + W(static_cast<uint32_t>(counter)),
                         W(static_cast<uint32_t>(counter >> 32)), draws.parameter, draws.t}},
                       draws.keys);
}

/// The 16 random bits of element i of the parameter.
TANDEM_HD uint32_t random_bits(const DrawKey& key, int64_t i) {
  const int64_t within = i % kDrawBlock;
  const Philox words = draw(Draws<uint32_t>(key), i / kDrawBlock, static_cast<uint32_t>(within % 16 / 2));
  return words.x[within / 16] >> (within % 2 * 16) & 0xFFFFu;
}

}  // namespace tandem
