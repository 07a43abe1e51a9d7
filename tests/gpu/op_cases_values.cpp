// Values, bytes and comparisons of the op cases.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/math/philox.h"
#include "tests/gpu/op_cases.h"

namespace tandem::op_cases {

namespace {

struct Format {
  int significand, least_exponent;
  double most;
};
Format format_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {8, -126, std::ldexp(255.0, 120)};
    case DType::f16:
      return {11, -14, 65504};
    case DType::f32:
      return {24, -126, std::ldexp(16777215.0, 104)};
    default:
      return {53, -1022, 1.7976931348623157e308};
  }
}

double to_multiple(double x, DType dtype, double (*round)(double)) {
  if (!std::isfinite(x) || x == 0 || dtype == DType::f64 || dtype == DType::i32) return x;
  const Format format = format_of(dtype);
  const int exponent = std::max(std::ilogb(x), format.least_exponent) - (format.significand - 1);
  const double y = std::ldexp(round(std::ldexp(x, -exponent)), exponent);
  return std::fabs(y) > format.most ? std::copysign(HUGE_VAL, x) : y;
}

double nearest_even(double x) { return std::nearbyint(x); }
double half_away(double x) { return std::round(x); }

template <class T>
void put(std::vector<std::byte>& bytes, T value) {
  const auto raw = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}
template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

void put_as(std::vector<std::byte>& bytes, DType dtype, double v) {
  switch (dtype) {
    case DType::f32:
      return put(bytes, static_cast<float>(v));
    case DType::bf16:
      return put(bytes, to_bf16(static_cast<float>(v)));
    case DType::f16:
      return put(bytes, to_f16(static_cast<float>(v)));
    case DType::f64:
      return put(bytes, v);
    case DType::i32:
      return put(bytes, static_cast<int32_t>(v));
    case DType::u8:
      return put(bytes, static_cast<uint8_t>(v));
  }
}

double get_as(const std::byte* from, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(get<float>(from));
    case DType::bf16:
      return static_cast<double>(to_float(get<bf16>(from)));
    case DType::f16:
      return static_cast<double>(to_float(get<f16>(from)));
    case DType::f64:
      return get<double>(from);
    case DType::i32:
      return get<int32_t>(from);
    case DType::u8:
      return get<uint8_t>(from);
  }
  return 0;
}

}  // namespace

double rounded(double x, DType dtype) { return to_multiple(x, dtype, nearest_even); }
double rounded_weight(double x, DType dtype) {
  return to_multiple(x, dtype, dtype == DType::bf16 ? half_away : nearest_even);
}
double rounding_unit(DType dtype) { return std::ldexp(1.0, -format_of(dtype).significand); }

std::vector<std::byte> encode(DType dtype, const Values& values) {
  std::vector<std::byte> bytes;
  for (const double v : values) put_as(bytes, dtype, v);
  return bytes;
}

Values decode(DType dtype, std::span<const std::byte> bytes) {
  Values values;
  for (size_t i = 0; i < bytes.size(); i += size_of(dtype)) values.push_back(get_as(&bytes[i], dtype));
  return values;
}

std::string complaint(const CaseTensor& tensor, std::span<const std::byte> after) {
  if (tensor.expected.empty()) {
    const std::vector<std::byte> before = encode(tensor.dtype, tensor.before);
    return std::ranges::equal(before, after) ? "" : tensor.name + " is not an output, but was changed";
  }
  const Values got = decode(tensor.dtype, after);
  double worst = 1;  // in units of what is allowed
  std::string text;
  for (size_t i = 0; i < got.size(); ++i) {
    const double expected = tensor.expected[i], allowed = tensor.allowed.empty() ? 0 : tensor.allowed[i];
    if (got[i] == expected || (std::isnan(got[i]) && std::isnan(expected))) continue;
    const double error = std::fabs(got[i] - expected);
    const double excess =
        error <= allowed ? 0 : (allowed > 0 && std::isfinite(error) ? error / allowed : HUGE_VAL);
    if (excess <= worst) continue;
    worst = excess;
    text = fmt::format("{}[{}] is {:.9g}, not {:.9g} (error {:.3g}, allowed {:.3g})", tensor.name, i, got[i],
                       expected, error, allowed);
  }
  return text;
}

Values random_values(int64_t count, DType dtype, uint64_t seed, double size) {
  Values values;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = philox(seed, static_cast<uint64_t>(i), 7).x[0];
    values.push_back(rounded((static_cast<double>(word) / 2147483648.0 - 1.0) * size, dtype));
  }
  return values;
}

}  // namespace tandem::op_cases
