#pragma once
// The verbs of a device. The stream comes first, outputs next, inputs last. Every verb enqueues and returns;
// shapes are checked at the call (ASSERT). "act" is the activation type: f32, bf16 or f16, the same for all
// act tensors of a call. Products and reductions accumulate in fp32 or better; outputs round once, to nearest
// even. Results depend on shapes and values alone.
#include <cstdint>

#include "core/base/tensor.h"
#include "core/device/device.h"
#include "core/math/adam_formula.h"

namespace tandem {

/// How a product meets what its output holds: it replaces it, or is added to it (in the output's type, one
/// rounding).
enum class Into : uint8_t { replace, add };

struct AttentionShape {
  int64_t batch = 0, length = 0;    ///< B, T
  int64_t heads = 0, kv_heads = 0;  ///< query heads; key and value heads (heads % kv_heads == 0; query head h
                                    ///< reads kv head h / (heads / kv_heads))
  int64_t head_dim = 0;             ///< D
  int64_t window = 0;               ///< 0 = causal without a window; w: row i sees keys i-w+1 .. i
  float scale = 0;                  ///< of the scores, usually 1/sqrt(D)
};

/// Tensors of one device Adam pass over a range of one block; all of equal length n.
struct AdamTensors {
  Tensor master, moment1, moment2;  // [n] fp32, updated
  Tensor weight_out;                // [n] f32, bf16 or f16: round_weight(master) or its prediction
  Tensor grad;                      // [n] f32, bf16 or f16; may be the memory of weight_out
};

/// What the pass publishes: round_weight(p + prediction * (p - p_old)); 0 = the rounded master itself.
struct AdamPublish {
  float prediction = 0;
};

class Ops {
 public:
  Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;
  virtual ~Ops() = default;

  // ---- look-up
  // --------------------------------------------------------------------------------------------------------
  /// y[n, :] = table[tokens[n], :].  y: [N, H] act; table: [V, H] act; tokens: [N] i32 in [0, V).
  virtual void embedding_forward(Stream&, Tensor y, Tensor table, Tensor tokens) = 0;
  /// dtable[tokens[n], :] += dy[n, :], for n in ascending order.  dtable: [V, H] fp32; dy: [N, H] act.
  virtual void embedding_backward(Stream&, Tensor dtable, Tensor dy, Tensor tokens) = 0;

  // ---- norm
  // -----------------------------------------------------------------------------------------------------------
  /// y[r, :] = x[r, :] * rstd[r] * w, rstd[r] = 1/sqrt(mean(x[r, :]^2) + eps), in fp32.  y, x: [R, C] act; w:
  /// [C] act; rstd: [R] fp32.
  virtual void rms_norm_forward(Stream&, Tensor y, Tensor rstd, Tensor x, Tensor w, float eps) = 0;
  /// dx = dresidual + the norm's gradient (dresidual may be empty, or dx itself); dw[c] += sum over r of
  /// dy*x*rstd. dx, dresidual, dy, x: [R, C] act; dw: [C] fp32, or empty where the weight is not trained.
  virtual void rms_norm_backward(Stream&, Tensor dx, Tensor dw, Tensor dresidual, Tensor dy, Tensor x,
                                 Tensor w, Tensor rstd) = 0;
  /// y[r, :] = (x[r, :] - mean[r]) * rstd[r] * w + b, rstd[r] = 1/sqrt(var(x[r, :]) + eps), var with 1/C, in
  /// fp32.  y, x: [R, C] act; w, b: [C] act; mean, rstd: [R] fp32.
  virtual void layer_norm_forward(Stream&, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b,
                                  float eps) = 0;
  /// dx = dresidual + the norm's gradient (dresidual may be empty, or dx itself); dw[c] += sum over r of
  /// dy*(x-mean)*rstd; db[c] += sum over r of dy. dx, dresidual, dy, x: [R, C] act; dw, db: [C] fp32, each
  /// empty where it is not trained.
  virtual void layer_norm_backward(Stream&, Tensor dx, Tensor dw, Tensor db, Tensor dresidual, Tensor dy,
                                   Tensor x, Tensor w, Tensor mean, Tensor rstd) = 0;

  // ---- products
  // -------------------------------------------------------------------------------------------------------
  /// y = x * w^T.  y: [N, O] act or fp32; x: [N, I] act; w: [O, I] act.
  virtual void linear_forward(Stream&, Tensor y, Tensor x, Tensor w, Into into = Into::replace) = 0;
  /// dx = dy * w.  dx: [N, I] act; dy: [N, O] act; w: [O, I] act.
  virtual void linear_backward_input(Stream&, Tensor dx, Tensor dy, Tensor w, Into into = Into::replace) = 0;
  /// dw += dy^T * x, in fp32.  dw: [O, I] fp32; dy: [N, O] act; x: [N, I] act.
  virtual void linear_backward_weight(Stream&, Tensor dw, Tensor dy, Tensor x) = 0;
  /// y[n, :] += bias, one rounding.  y: [N, O] act; bias: [O] act.
  virtual void add_bias(Stream&, Tensor y, Tensor bias) = 0;
  /// dbias[o] += sum over n of dy[n, o], in fp32.  dbias: [O] fp32; dy: [N, O] act.
  virtual void bias_backward(Stream&, Tensor dbias, Tensor dy) = 0;

  // ---- attention
  // ------------------------------------------------------------------------------------------------------
  /// Rotates pairs (j, j + D/2) of every head by the angle of its position t:
  ///   y1 = x1*cos - x2*sin; y2 = x2*cos + x1*sin.  direction -1 is the inverse rotation (the backward).
  /// y, x: [B, T, heads, D] act (y may be x); cos, sin: [>= T, D/2] fp32.
  virtual void rope(Stream&, Tensor y, Tensor x, Tensor cos, Tensor sin, int direction) = 0;
  /// out = softmax(scale * q k^T, causal) v; softmax in fp32.  out, q: [B, T, heads, D]; k, v: [B, T,
  /// kv_heads, D] act; lse: [B, heads, T] fp32 = log of the sum of exp of each row's scaled scores.
  virtual void attention_forward(Stream&, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                                 const AttentionShape&) = 0;
  /// Gradients of the above; dk and dv sum over the query heads of a group. All act but lse.
  virtual void attention_backward(Stream&, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q, Tensor k,
                                  Tensor v, Tensor out, Tensor lse, const AttentionShape&) = 0;

  // ---- pointwise
  // ------------------------------------------------------------------------------------------------------
  /// y = silu(gate) * up.  All [N, F] act.
  virtual void swiglu_forward(Stream&, Tensor y, Tensor gate, Tensor up) = 0;
  /// dgate, dup from dy. dgate may be gate's memory, dup up's.
  virtual void swiglu_backward(Stream&, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) = 0;
  /// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), "gelu_new".  All [N, F] act.
  virtual void gelu_forward(Stream&, Tensor y, Tensor x) = 0;
  /// dx from dy; dx may be x's memory.
  virtual void gelu_backward(Stream&, Tensor dx, Tensor dy, Tensor x) = 0;
  /// y = a + b; y may be a or b.  All of one dtype and size.
  virtual void add(Stream&, Tensor y, Tensor a, Tensor b) = 0;
  /// dst = src in dst's dtype, nearest even.
  virtual void cast(Stream&, Tensor dst, Tensor src) = 0;

  // ---- loss
  // -----------------------------------------------------------------------------------------------------------
  /// loss[0] += sum over rows with targets[r] >= 0 of (log sum exp(logits[r, :]) - logits[r, targets[r]]),
  /// rows added in order in double. If dlogits is not empty: dlogits[r, :] = (softmax(logits[r, :]) - onehot)
  /// * scale, zero where targets[r] < 0. loss: [1] f64; dlogits: [R, V] act (may be the logits' memory when
  /// act is fp32); logits: [R, V] fp32; targets: [R] i32, in [0, V) or -100.
  virtual void softmax_cross_entropy(Stream&, Tensor loss, Tensor dlogits, Tensor logits, Tensor targets,
                                     float scale) = 0;

  // ---- gradients and optimizer
  // ------------------------------------------------------------------------------------------
  /// out[0] = sum of squares in the order of core/math/reduce_tree.h; out[1] = number of non-finite elements,
  /// by exponent bits. out: [2] f64; x: flat, any float type.
  virtual void sum_of_squares(Stream&, Tensor out, Tensor x) = 0;
  /// One pass of core/math/adam_formula.h.
  virtual void adam(Stream&, const AdamTensors&, Decay, const AdamScalars&, AdamPublish) = 0;
  /// dst = round_weight(src).  dst: f32, bf16 or f16; src: fp32.
  virtual void round_weights(Stream&, Tensor dst, Tensor src) = 0;
};

}  // namespace tandem
