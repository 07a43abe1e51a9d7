#pragma once
// The ops of core/device/ops.h in double, by plain loops: what devices are measured against. They share
// nothing with the devices. Beside each value stands its magnitude: the sum of the absolute values that were
// added up to make it, times how much earlier steps multiply relative errors; tolerances are multiples of it
// in units of fp32 rounding.
#include <cstdint>
#include <vector>

#include "core/device/ops.h"

namespace tandem::op_cases {

using Values = std::vector<double>;

struct Result {
  Values value, magnitude;
};

/// c[m, n] = op(a) * op(b); a_turned: a is stored [k, m]; b_turned: b is stored [n, k].
Result product(int64_t m, int64_t n, int64_t k, const Values& a, bool a_turned, const Values& b,
               bool b_turned);

struct NormForward {
  Result y, rstd;
};
NormForward rms_norm_forward(const Values& x, const Values& w, double eps);
struct NormBackward {
  Result dx, dw;
};
NormBackward rms_norm_backward(const Values& dy, const Values& x, const Values& w, const Values& rstd);

/// x: [B, T, heads, D].
Result rope(const Values& x, const Values& cos, const Values& sin, int64_t length, int64_t heads,
            int64_t head_dim, int direction);

struct AttentionForward {
  Result out, lse;
};
AttentionForward attention_forward(const Values& q, const Values& k, const Values& v,
                                   const AttentionShape& shape);
struct AttentionBackward {
  Result dq, dk, dv;
};
/// A function of out and lse as they are given, like the op.
AttentionBackward attention_backward(const Values& dout, const Values& q, const Values& k, const Values& v,
                                     const Values& out, const Values& lse, const AttentionShape& shape);

Result swiglu_forward(const Values& gate, const Values& up);
struct SwigluBackward {
  Result dgate, dup;
};
SwigluBackward swiglu_backward(const Values& dy, const Values& gate, const Values& up);

struct CrossEntropy {
  Result loss, dlogits;
};
CrossEntropy softmax_cross_entropy(const Values& logits, const std::vector<int32_t>& targets, double scale);

}  // namespace tandem::op_cases
