#pragma once
// How compact optimizer states are coded (core/math/state_formats.h lists the formats). One text for scalar,
// SIMD and CUDA: V is float or a batch, Words<V> its 32-bit words; all give the same bits. A plane of zeros
// decodes to zeros, and zeros are coded as zeros.
//
// Rounding is stochastic wherever a step of a format may exceed an update: rounding to nearest would stop a
// weight at 1 with steps of 1e-5, or a second moment that falls by a thousandth. An element's one random word
// (core/math/philox.h) serves all of its planes: the lower half for a first moment in bf16, the upper half
// for a second one, or 12 bits for each in int8 from below; the upper 8 bits for the master (shared with a
// second moment in bf16). A value that its format holds exactly is never changed.
#include "core/math/value_ops.h"

namespace tandem {

// --- Masters ---

/// The bits of round_weight<bf16>(p): half away from zero; NaN keeps its upper bits and becomes quiet.
template <class V>
TANDEM_HD Words<V> upper_of(V p) {
  using W = Words<V>;
  const W bits = bits_of(p);
  return choose(is_nan(p), shift_right<16>(bits) | W(0x40u), shift_right<16>(bits + W(0x8000u)));
}

/// split: the lower 16 bits of p beside upper_of(p). Lossless for all but NaN, which stays NaN: upper_of sets
/// its quiet bit, so that what is joined below has a mantissa.
template <class V>
TANDEM_HD Words<V> split_low(V p) {
  return bits_of(p) & Words<V>(0xFFFFu);
}
/// `upper` was rounded up exactly where the top bit of `low` is set.
template <class V>
TANDEM_HD V split_joined(Words<V> upper, Words<V> low) {
  return float_of(shift_left<16>(upper - shift_right<15>(low)) | low);
}

/// ulp8: p on a grid of 1/256 of bf16's (16 significant bits; 2^-15 of p or less apart): the bits of p plus
/// the upper 8 of a random word, less the last 8. The expected value is p exactly, the error below one step;
/// with the word 0x80000000: nearest, half away. Infinities stay; NaN keeps its upper 16 bits; a finite value
/// above the last of the grid may become infinite, as its bf16 is.
template <class V>
TANDEM_HD V ulp8_rounded(V p, Words<V> random) {
  using W = Words<V>;
  const W bits = bits_of(p);
  return float_of(choose(is_nan(p), (bits | W(0x400000u)) & W(0xFFFF0000u),
                         (bits + shift_right<24>(random)) & W(0xFFFFFF00u)));
}
/// The signed 8-bit error of upper_of(rounded) in steps of the grid, as the low 8 bits of a word.
template <class V>
TANDEM_HD Words<V> ulp8_error(V rounded, Words<V> upper) {
  return (shift_right<8>(bits_of(rounded)) - shift_left<8>(upper)) & Words<V>(0xFFu);
}
/// `error` sign-extended to 32 bits.
template <class V>
TANDEM_HD V ulp8_joined(Words<V> upper, Words<V> error) {
  return float_of(shift_left<8>(shift_left<8>(upper) + error));
}

// --- Moments in bf16 ---

/// The 16 bits kept of x plus 16 random ones below them: the expected value is x exactly. Infinities stay,
/// NaN stays NaN, a finite value above the largest bf16 may become infinite.
template <class V>
TANDEM_HD Words<V> bf16_stochastic(V x, Words<V> random16) {
  using W = Words<V>;
  const W bits = bits_of(x);
  return choose(is_nan(x), shift_right<16>(bits) | W(0x40u), shift_right<16>(bits + random16));
}
template <class V>
TANDEM_HD Words<V> moment1_bf16(V m, Words<V> random) {
  return bf16_stochastic(m, random & Words<V>(0xFFFFu));
}
template <class V>
TANDEM_HD Words<V> moment2_bf16(V v, Words<V> random) {
  return bf16_stochastic(v, shift_right<16>(random));
}

// --- Moments in int8 ---
//
// Groups of 32 elements, counted from the parameter's element 0; the last may be short. One scale each, the
// group's largest magnitude rounded up to bf16: fp16 would lose roots of second moments below 6e-8, and the
// scale's own precision doesn't matter, since codes are relative to the scale as stored. The scale of a group
// of zeros is 0; a group that holds what can't be coded (NaN, a first moment of 2^126 or more) has a scale of
// NaN and decodes to NaN. V of the functions on a scale's bits says for whom they are compiled.

constexpr int64_t kStateGroup = 32;
constexpr uint32_t kScaleOfNan = 0x7FC0u;

/// Positive finite bits rounded up to bf16, as its 16 bits.
template <class V>
TANDEM_HD uint32_t scale_above(uint32_t bits) {
  return (bits + 0xFFFFu) >> 16;
}
/// The scale (bf16 bits) of first moments whose largest magnitude has these bits. At least 2^-126: below it
/// moments lose precision as denormals do.
template <class V>
TANDEM_HD uint32_t moment1_scale(uint32_t largest) {
  if (largest == 0) return 0;
  if (largest >= 0x7E800000u) return kScaleOfNan;  // 2^126
  return greatest(scale_above<V>(largest), 0x0080u);
}
/// The scale (bf16 bits) of second moments whose largest square root has these bits. Beside an infinite one,
/// which stays infinite (its weight stands still), the others are at least (2^64 / 255)^2: they stand still
/// with it.
template <class V>
TANDEM_HD uint32_t moment2_scale(uint32_t largest) {
  if (largest > 0x7F800000u) return kScaleOfNan;
  if (largest == 0x7F800000u) return 0x5F81u;  // the bf16 above 2^64, whose square overflows
  return scale_above<V>(largest);
}
/// The scale to code by: that of a group of zeros doesn't matter, but may not be 0.
template <class V>
TANDEM_HD V coding_scale(uint32_t scale) {
  return V(scale == 0 ? 1.0f : bits_float(scale << 16));
}

/// First moment: x = m / scale companded to y = 2x / (1 + |x|), 127 y rounded stochastically: in [-127, 127]
/// as the low 8 bits of a word. What is added before the fraction is cut is 128 and the middle of the random
/// one of 4096 parts of [0, 1), made as a float's bits: the expected value is 127 y to within 2^-13.
template <class V>
TANDEM_HD Words<V> moment1_code(V m, V scale, Words<V> random) {
  using W = Words<V>;
  const V part = float_of((shift_left<4>(random) & W(0xFFF0u)) | W(0x43000008u));
  const V shifted = m / (scale + magnitude(m)) * V(254.0f) + part;
  return (whole(least(shifted, V(255.0f))) - W(128u)) & W(0xFFu);
}
/// `code` sign-extended to 32 bits.
template <class V>
TANDEM_HD V moment1_of(Words<V> code, V scale) {
  const V y = signed_float(code);
  return y / (V(254.0f) - magnitude(y)) * scale;
}

/// Second moment, by its root: 255 root / scale rounded stochastically, in [0, 255]; 0 only for 0, since a
/// moment that vanishes would leave eps alone under the first one. steps is 255 / scale; the random part is
/// as above, beside 1.
template <class V>
TANDEM_HD Words<V> moment2_code(V root_of_v, V steps, Words<V> random) {
  using W = Words<V>;
  const V part = float_of((shift_right<1>(random) & W(0x7FF800u)) | W(0x3F800400u));
  const V kept = greatest(least(fused(root_of_v, steps, part), V(256.0f)), V(2.0f));
  return choose(is_zero(root_of_v), W(0u), whole(kept) - W(1u));
}
/// What one code of the root counts.
template <class V>
TANDEM_HD V code_step(V scale) {
  return scale * V(1.0f / 255.0f);
}
template <class V>
TANDEM_HD V moment2_of(Words<V> code, V step) {
  const V r = signed_float(code) * step;
  return r * r;
}

}  // namespace tandem
