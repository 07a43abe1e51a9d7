#pragma once
// Text of the ISA files streams_WIDTH.cpp: vectors of the compiler's own, so that one text serves every
// architecture.
#include <cstring>

#include "bench/isa/streams.h"

namespace tandem {
namespace {

template <int kWidth>
struct Vector {
  typedef uint32_t Lanes __attribute__((vector_size(kWidth)));
  Lanes x = {};
  static Lanes load(const std::byte* from) {
    Lanes x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  static void store(std::byte* to, Lanes x) { std::memcpy(to, &x, sizeof x); }
};

/// `count` vectors. `zero` is 0, which the compiler doesn't know.
template <int kWidth>
inline void move_plane(Stream64::Use use, std::byte* at, size_t count, Vector<kWidth>& seen,
                       const Vector<kWidth>& zero) {
  using V = Vector<kWidth>;
  const std::byte* end = at + count * kWidth;
  if (use == Stream64::Use::read)
    for (; at < end; at += kWidth) seen.x |= V::load(at);
  else if (use == Stream64::Use::write)
    for (; at < end; at += kWidth) V::store(at, zero.x);
  else
    for (; at < end; at += kWidth) V::store(at, V::load(at) ^ zero.x);
}

template <int kWidth>
inline void move_streams(const std::vector<Stream64>& streams, int64_t begin, int64_t end) {
  Vector<kWidth> seen, zero;
  Vector<4> seen_word, zero_word;
  asm volatile("" : "+m"(zero), "+m"(zero_word));
  for (int64_t block = begin; block < end; ++block)
    for (const Stream64& stream : streams) {
      std::byte* at = stream.data + static_cast<size_t>(block) * stream.bytes;
      const size_t vectors = stream.bytes / kWidth, words = stream.bytes % kWidth / 4;
      move_plane(stream.use, at, vectors, seen, zero);
      move_plane(stream.use, at + vectors * kWidth, words, seen_word, zero_word);
    }
  asm volatile("" : : "m"(seen), "m"(seen_word));
}

}  // namespace
}  // namespace tandem
