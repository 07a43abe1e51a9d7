#pragma once
// How compact optimizer states are coded (core/math/state_formats.h lists the formats). One text for scalar,
// SIMD and CUDA: V is float or a batch, Words<V> its 32-bit words; all give the same bits. A plane of zeros
// decodes to zeros, and zeros are coded as zeros.
//
// Rounding is stochastic wherever a step of a format may exceed an update: rounding to nearest would stop a
// weight at 1 with steps of 1e-5, or a second moment that falls by a thousandth. An element has 16 random
// bits (core/math/philox.h), and all of its planes are rounded by them: each one's expected value is right,
// and where one moment is rounded up the other tends to be too, which takes noise out of their quotient. A
// value that its format holds exactly is never changed.
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
/// the upper 8 random ones, less the last 8. The expected value is p exactly, the error below one step.
/// Infinities stay; NaN becomes the usual one; a finite value above the last of the grid may become infinite,
/// as its bf16 is.
template <class V>
TANDEM_HD V ulp8_rounded(V p, Words<V> random) {
  using W = Words<V>;
  const W kept = (bits_of(p) + shift_right<8>(random)) & W(0xFFFFFF00u);
  return float_of(choose(is_nan(p), W(0x7FC00000u), kept));
}
/// The random bits with which ulp8 rounds to nearest, half away.
constexpr uint32_t kUlp8Nearest = 0x8000u;
/// upper_of a value on the grid, where NaN needs no care.
template <class V>
TANDEM_HD Words<V> ulp8_upper(V rounded) {
  return shift_right<16>(bits_of(rounded) + Words<V>(0x8000u));
}
/// The signed 8-bit error of ulp8_upper(rounded) in steps of the grid, as the low 8 bits of a word; above
/// them are others.
template <class V>
TANDEM_HD Words<V> ulp8_error(V rounded) {
  return shift_right<8>(bits_of(rounded));
}
/// `error` sign-extended to 32 bits.
template <class V>
TANDEM_HD V ulp8_joined(Words<V> upper, Words<V> error) {
  return float_of(shift_left<8>(shift_left<8>(upper) + error));
}

// --- Moments in bf16 ---

/// The 16 bits kept of x plus 16 random ones below them: the expected value is x exactly. Infinities stay,
/// NaN becomes the usual one, a finite value above the largest bf16 may become infinite.
template <class V>
TANDEM_HD Words<V> moment_bf16(V x, Words<V> random) {
  return choose(is_nan(x), Words<V>(0x7FC0u), shift_right<16>(bits_of(x) + random));
}

// --- Moments in int8 ---
//
// Groups of 32 elements, counted from the parameter's element 0; the last may be short. A group has one scale
// c for each moment, in bf16, and x (a first moment, or the root of a second one) is coded by the mu-law of
// telephony (ITU-T G.711) made continuous: the bits of |x| + c above those of c, of which all but the
// exponent and the first bits of the mantissa are rounded away. c is about 1/14 of the group's largest |x|,
// so that the exponent takes two bits, and itself a value of the code. A first moment has a sign and 5 bits
// of mantissa: steps of 1/64 to 1/32 of |x| + c. A root, which has no sign, has 6: steps half as wide. It
// takes neither division nor root (the root is Adam's), and the difference that gives a code's value is
// exact.
//
// Scales are at least 2^-126, below which denormals lose precision anyway; that of a group of zeros is 0. A
// group that holds what can't be coded (NaN, a first moment of 2^126 or more) has a scale of NaN and decodes
// to NaN. An infinite second moment stays infinite, and so its weight stands still; the others of its group
// are then coded as at least 2^108, and stand still with it until they have decayed.

constexpr int64_t kStateGroup = 32;
constexpr uint32_t kScaleOfNan = 0x7FC0u;

/// Bits of a float that a code leaves out.
constexpr int kMoment1Shift = 18, kMoment2Shift = 17;
/// What an infinite root is coded as; its square is infinite, as that of the code below it.
constexpr uint32_t kRootOfInfinity = 0x60000000u;  // 2^65

/// How a moment's scale follows from the bits of the group's largest |x|.
struct ScaleRule {
  uint32_t addend;    ///< with it, they are the bits of c, rounded up ...
  uint32_t kept;      ///< ... to these: those that a code counts, so that exponents change between two codes
  uint32_t smallest;  ///< bits taken at least
  uint32_t largest;   ///< bits taken at most
  uint32_t nan_from;  ///< bits from which on the group can't be coded
};
/// c is as far below the largest as the last code is above 0, less 17 units of bf16: it is their sum that is
/// coded, whose bits are up to 16.6 units (c / 14.5 of the largest) above those of the largest.
constexpr ScaleRule scale_rule(uint32_t last_code, int shift, uint32_t largest, uint32_t nan_from) {
  const uint32_t rounding = (1u << shift) - 1u;
  const uint32_t addend = (17u << 16) + rounding - (last_code << shift);
  return {addend, ~rounding, 0x00800000u - addend + rounding, largest, nan_from};
}
constexpr ScaleRule kMoment1Scale = scale_rule(127, kMoment1Shift, 0x7E7FFFFFu, 0x7E800000u);
constexpr ScaleRule kMoment2Scale = scale_rule(255, kMoment2Shift, kRootOfInfinity, 0x7F800001u);

/// The scale (bf16 bits). W: a word, or a batch of them with its own rules in its lanes.
template <class W>
struct ScaleRules {
  W addend, kept, smallest, largest, nan_from;
};
template <class W>
TANDEM_HD W group_scale(W of, const ScaleRules<W>& rule) {
  const W scale = (least(greatest(of, rule.smallest), rule.largest) + rule.addend) & rule.kept;
  return choose(at_least(W(0u), of), W(0u),
                choose(at_least(of, rule.nan_from), W(kScaleOfNan), shift_right<16>(scale)));
}
TANDEM_HD uint32_t group_scale(uint32_t of, const ScaleRule& rule) {
  return group_scale(
      of, ScaleRules<uint32_t>{rule.addend, rule.kept, rule.smallest, rule.largest, rule.nan_from});
}
/// The bits of c to code by; 0 where there is nothing to code.
template <class W>
TANDEM_HD W coding_base(W scale) {
  return shift_left<16>(choose(at_least(scale, W(kScaleOfNan)), W(0u), scale));
}

/// The bits of x + c above those of c, with 16 random ones and half of the last of them below the code: so
/// the expected value is x to within 2^-17 of a step.
template <int kShift, class V>
TANDEM_HD Words<V> code_of(V x, Words<V> base, Words<V> random) {
  using W = Words<V>;
  constexpr uint32_t kHalf = 1u << (kShift - 17);
  return shift_right<kShift>(bits_of(x + float_of(base)) - (base - W(kHalf)) +
                             shift_left<kShift - 16>(random));
}

/// First moment: the low 8 bits of a word, sign above magnitude; above them may be others.
template <class V>
TANDEM_HD Words<V> moment1_code(V m, Words<V> base, Words<V> random) {
  using W = Words<V>;
  return code_of<kMoment1Shift>(magnitude(m), base, random) | (shift_right<24>(bits_of(m)) & W(0x80u));
}
/// code: zero-extended to 32 bits.
template <class V>
TANDEM_HD V moment1_of(Words<V> code, V scale) {
  using W = Words<V>;
  const W high = shift_left<24>(code);
  const W above = shift_right<24 - kMoment1Shift>(high) & W(0x7Fu << kMoment1Shift);
  const V x = float_of(bits_of(scale) + above) - scale;
  return float_of(bits_of(x) | (high & W(0x80000000u)));
}

/// Second moment, by its root: the low 8 bits of a word; above them may be others. 0 stands for 0 alone: a
/// moment that vanishes would leave eps alone under the first.
template <class V>
TANDEM_HD Words<V> moment2_code(V root_of_v, Words<V> base, Words<V> random) {
  using W = Words<V>;
  const W x = least(bits_of(root_of_v), W(kRootOfInfinity));
  return greatest(code_of<kMoment2Shift>(float_of(x), base, random), least(x, W(1u)));
}
template <class V>
TANDEM_HD V moment2_of(Words<V> code, V scale) {
  const V x = float_of(bits_of(scale) + shift_left<kMoment2Shift>(code)) - scale;
  return x * x;
}

}  // namespace tandem
