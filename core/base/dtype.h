#pragma once
// Element types and their roundings. Header-only: g++ and nvcc.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/portable.h"

namespace tandem {

enum class DType : uint8_t { f32, bf16, f16, f64, i32, u8 };

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::f32:
      return "float32";
    case DType::i32:
      return "int32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    case DType::u8:
      return "uint8";
  }
  return "?";
}

/// Storage of a 16-bit float: the bits, nothing implicit.
struct bf16 {
  uint16_t bits = 0;
};
struct f16 {
  uint16_t bits = 0;
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};

TANDEM_HD float to_float(float x) { return x; }
TANDEM_HD float to_float(bf16 x) { return bits_float(static_cast<uint32_t>(x.bits) << 16); }

/// Exact, denormals and infinities included.
TANDEM_HD float to_float(f16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1Fu;
  const uint32_t mantissa = x.bits & 0x3FFu;
  if (exponent == 0x1F) return bits_float(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) return bits_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
  return sign != 0 ? -magnitude : magnitude;
}

/// Round to nearest, ties to even: activations and gradients. NaN stays NaN.
TANDEM_HD bf16 to_bf16(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return bf16{static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return bf16{static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

/// Round to nearest, ties away from zero: weights in bf16, so that a split master is lossless. NaN stays NaN.
TANDEM_HD bf16 to_bf16_half_away(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return bf16{static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return bf16{static_cast<uint16_t>((bits + 0x8000u) >> 16)};
}

/// Round to nearest, ties to even; above 65504 + half a step: infinity; denormals kept.
TANDEM_HD f16 to_f16(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return f16{static_cast<uint16_t>(sign | 0x7E00u)};
  if (magnitude >= 0x47800000u) return f16{static_cast<uint16_t>(sign | 0x7C00u)};  // >= 65536
  if (magnitude >= 0x38800000u) {                                                   // normal: >= 2^-14
    const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
    return f16{static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
  }
  if (magnitude < 0x33000000u) return f16{static_cast<uint16_t>(sign)};  // < 2^-25
  const uint32_t exponent = magnitude >> 23;
  const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
  const uint32_t shift = 126 - exponent;  // 14 .. 24
  const uint32_t kept = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1);
  const uint32_t up = (rest > half || (rest == half && (kept & 1u))) ? 1u : 0u;
  return f16{static_cast<uint16_t>(sign | (kept + up))};
}

/// Activations and gradients: nearest even.
template <class T>
TANDEM_HD T round_to(float x);
template <>
TANDEM_HD float round_to<float>(float x) {
  return x;
}
template <>
TANDEM_HD bf16 round_to<bf16>(float x) {
  return to_bf16(x);
}
template <>
TANDEM_HD f16 round_to<f16>(float x) {
  return to_f16(x);
}

/// Weights: bf16 half away, f16 nearest even, f32 as it is.
template <class T>
TANDEM_HD T round_weight(float x);
template <>
TANDEM_HD float round_weight<float>(float x) {
  return x;
}
template <>
TANDEM_HD bf16 round_weight<bf16>(float x) {
  return to_bf16_half_away(x);
}
template <>
TANDEM_HD f16 round_weight<f16>(float x) {
  return to_f16(x);
}

/// True for infinities and NaN: all exponent bits set.
TANDEM_HD bool non_finite(float x) { return (float_bits(x) & 0x7F800000u) == 0x7F800000u; }
TANDEM_HD bool non_finite(bf16 x) { return (x.bits & 0x7F80u) == 0x7F80u; }
TANDEM_HD bool non_finite(f16 x) { return (x.bits & 0x7C00u) == 0x7C00u; }

}  // namespace tandem
