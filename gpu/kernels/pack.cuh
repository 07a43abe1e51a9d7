#pragma once
// Eight neighbouring elements in registers, as floats. Sums over packs run in an order that depends on the
// length alone: how a pack meets memory (16 bytes at a time, or element by element where a row starts or ends
// badly) changes no bit.
#include "gpu/kernels/simt.h"

namespace tandem::gpu::TANDEM_SIMT {

constexpr int kPack = 8;

struct Pack {
  float x[kPack];
};

/// How a pack meets memory: its first `count` elements; `wide`: all of them, 16 bytes at a time.
struct Part {
  int count;
  bool wide;
};

/// f(k) for each element.
template <class F>
DEVICE Pack pack_of(const F& f) {
  Pack pack;
  UNROLL for (int k = 0; k < kPack; ++k) pack.x[k] = f(k);
  return pack;
}

/// The pack's elements as they are stored; those beyond the part are zero.
template <class T>
struct Elements {
  T x[kPack];
};

template <class T>
DEVICE Elements<T> read_elements(const T* from, Part part) {
  constexpr int kWide = Wide<T>::kSize;
  Elements<T> elements;
  if (part.wide) {
    UNROLL for (int k = 0; k < kPack; k += kWide) {
      const Wide<T> wide = read_wide(from + k);
      UNROLL for (int i = 0; i < kWide; ++i) elements.x[k + i] = wide.x[i];
    }
  } else {
    UNROLL for (int k = 0; k < kPack; ++k) elements.x[k] = k < part.count ? read(from + k) : T{};
  }
  return elements;
}

template <class T>
DEVICE void write_elements(T* to, const Elements<T>& elements, Part part) {
  constexpr int kWide = Wide<T>::kSize;
  if (part.wide) {
    UNROLL for (int k = 0; k < kPack; k += kWide) {
      Wide<T> wide;
      UNROLL for (int i = 0; i < kWide; ++i) wide.x[i] = elements.x[k + i];
      write_wide(to + k, wide);
    }
  } else {
    UNROLL for (int k = 0; k < kPack; ++k) if (k < part.count) write(to + k, elements.x[k]);
  }
}

template <class T>
DEVICE Pack load(const T* from, Part part) {
  const Elements<T> elements = read_elements(from, part);
  return pack_of([&](int k) { return widen(elements.x[k]); });
}

/// Rounded to nearest even.
template <class T>
DEVICE void store(T* to, const Pack& pack, Part part) {
  Elements<T> elements;
  UNROLL for (int k = 0; k < kPack; ++k) elements.x[k] = narrow<T>(pack.x[k]);
  write_elements(to, elements, part);
}

/// Rounded as weights are.
template <class T>
DEVICE void store_weight(T* to, const Pack& pack, Part part) {
  Elements<T> elements;
  UNROLL for (int k = 0; k < kPack; ++k) elements.x[k] = round_weight<T>(pack.x[k]);
  write_elements(to, elements, part);
}

/// The elements in use, pairwise.
DEVICE float sum_of(const Pack& pack, Part part) {
  float sums[kPack];
  UNROLL for (int k = 0; k < kPack; ++k) sums[k] = k < part.count ? pack.x[k] : 0.0f;
  UNROLL for (int width = kPack / 2; width > 0; width /= 2) {
    UNROLL for (int k = 0; k < width; ++k) sums[k] = sums[2 * k] + sums[2 * k + 1];
  }
  return sums[0];
}

/// True if every pointer is at a multiple of 16 bytes.
template <class... T>
DEVICE bool aligned(const T*... pointers) {
  return (... && (reinterpret_cast<uintptr_t>(pointers) % 16 == 0));
}

/// body(index, part) for each of the packs of [0, n) that are this worker's: every `workers`th.
template <class Body>
DEVICE void for_packs(int64_t n, int64_t worker, int64_t workers, bool wide, const Body& body) {
  for (int64_t i = worker * kPack; i < n; i += workers * kPack) {
    const int64_t left = n - i;
    body(i, Part{left < kPack ? static_cast<int>(left) : kPack, wide && left >= kPack});
  }
}
/// One row, shared by the threads of the block.
template <class Body>
DEVICE void for_row(int64_t n, bool wide, const Body& body) {
  for_packs(n, thread(), threads(), wide, body);
}
/// n elements, shared by all threads of the grid.
template <class Body>
DEVICE void for_grid(int64_t n, bool wide, const Body& body) {
  for_packs(n, block() * threads() + thread(), blocks() * threads(), wide, body);
}

}  // namespace tandem::gpu::TANDEM_SIMT
