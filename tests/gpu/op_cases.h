#pragma once
// One table of op calls for every device: the tensors of a call, how to make it, what it must give and how
// near.
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/device/ops.h"
#include "tests/gpu/op_cases_reference.h"

namespace tandem::op_cases {

/// One tensor of a call.
struct CaseTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  Values before;    ///< representable in dtype
  Values expected;  ///< empty: the call must leave every bit as it was
  Values allowed;   ///< |got - expected| at most, per element; empty beside expected: no difference at all
};

struct OpCase {
  std::string name;  ///< dtype, shape, what is special
  std::vector<CaseTensor> tensors;
  /// Makes the call on device tensors in the order of `tensors`.
  std::function<void(Ops&, Stream&, std::span<const Tensor>)> run;
};

/// The ops of the table, and the cases of one.
std::vector<std::string> op_names();
std::vector<OpCase> cases_of(const std::string& op);

/// The nearest value of the type, ties to even; for weights as core/base/dtype.h says. Arithmetic in double.
double rounded(double x, DType dtype);
double rounded_weight(double x, DType dtype);
/// Half a unit in the last place of a normal number, relative: 2^-24 for f32, 2^-8 for bf16, 2^-11 for f16.
double rounding_unit(DType dtype);

/// The bytes of representable values, and back.
std::vector<std::byte> encode(DType dtype, const Values& values);
Values decode(DType dtype, std::span<const std::byte> bytes);

/// "" if the bytes after the call are what the case allows; else the worst element.
std::string complaint(const CaseTensor& tensor, std::span<const std::byte> after);

/// Reproducible values in [-size, size], representable in dtype.
Values random_values(int64_t count, DType dtype, uint64_t seed, double size = 1);

}  // namespace tandem::op_cases
