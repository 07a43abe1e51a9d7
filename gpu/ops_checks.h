#pragma once
// What every device checks of a call before it enqueues anything: types and shapes as core/device/ops.h says
// them. A wrong call is our own bug: InternalError. Arguments are those of the verb, in its order.
#include <cstdint>

#include "core/base/tensor.h"
#include "core/device/ops.h"

namespace tandem::gpu {

/// Which operand is stored transposed. C[m, n] = op(A)[m, k] * op(B)[k, n], all row-major.
enum class Storage : uint8_t {
  nn,  ///< A [m, k], B [k, n]
  nt,  ///< A [m, k], B [n, k]
  tn,  ///< A [k, m], B [k, n]
};

/// c: [m, n]; k is what a and b share.
struct ProductShape {
  int64_t m, n, k;
  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

namespace checks {

void embedding_forward(const Tensor& y, const Tensor& table, const Tensor& tokens);
void embedding_backward(const Tensor& dtable, const Tensor& dy, const Tensor& tokens);
void rms_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& w);
void rms_norm_backward(const Tensor& dx, const Tensor& dw, const Tensor& dresidual, const Tensor& dy,
                       const Tensor& x, const Tensor& w, const Tensor& rstd);
void layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& w, const Tensor& b);
void layer_norm_backward(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& dresidual,
                         const Tensor& dy, const Tensor& x, const Tensor& w, const Tensor& mean,
                         const Tensor& rstd);
/// The three products: c = op(a) op(b). `verb` is for the message.
ProductShape product(const char* verb, Storage storage, const Tensor& c, const Tensor& a, const Tensor& b);
void weight_gradient(const Tensor& dw);
void add_bias(const Tensor& y, const Tensor& bias);
void bias_backward(const Tensor& dbias, const Tensor& dy);
void rope(const Tensor& y, const Tensor& x, const Tensor& cos, const Tensor& sin, int direction);
void attention_forward(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                       const Tensor& v, const AttentionShape& s);
void attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                        const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                        const Tensor& lse, const AttentionShape& s);
void swiglu_forward(const Tensor& y, const Tensor& gate, const Tensor& up);
void swiglu_backward(const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                     const Tensor& up);
void gelu_forward(const Tensor& y, const Tensor& x);
void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x);
void add(const Tensor& y, const Tensor& a, const Tensor& b);
void cast(const Tensor& dst, const Tensor& src);
void softmax_cross_entropy(const Tensor& loss, const Tensor& dlogits, const Tensor& logits,
                           const Tensor& targets);
void sum_of_squares(const Tensor& out, const Tensor& x);
void adam(const AdamTensors& t);
void round_weights(const Tensor& dst, const Tensor& src);

}  // namespace checks

}  // namespace tandem::gpu
