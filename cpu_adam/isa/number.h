#pragma once
// NaN is rare, and every codec and rounding has to ask for it. So the kernels ask once for a whole vector and
// say by the type what the answer was.
#include "core/math/value_ops.h"

namespace tandem {

/// What is_nan gives of numbers: choose then costs nothing.
struct NoLanes {};
template <class W>
inline W choose(NoLanes, W, W no) {
  return no;
}

/// A value none of whose lanes is NaN, for core/math/state_codecs.h.
template <class V>
struct Number {
  V x;
  Number(V number) : x(number) {}
  operator V() const { return x; }
  friend NoLanes is_nan(Number) { return {}; }
  friend Words<V> bits_of(Number a) { return bits_of(a.x); }
};
template <class V>
struct WordsOf<Number<V>> {
  using type = Words<V>;
};

}  // namespace tandem
