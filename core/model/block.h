#pragma once
// One transformer layer: what it holds, its forward and its backward, in the device's verbs.
#include <cstdint>

#include "core/device/device.h"
#include "core/device/ops.h"
#include "core/model/arch.h"
#include "core/model/params.h"
#include "core/run/scratch.h"

namespace tandem {

/// Sizes of one micro-batch in one layer.
struct LayerShape {
  int64_t batch = 0, length = 0;
  int64_t hidden = 0, intermediate = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0;  ///< of attention, 0 = full; the only size that differs between layers
  float eps = 0;
  bool layer_norm = false, gelu = false, qk_norm = false;
  DType dtype = DType::f32;
  LayerShape(const Arch& arch, DType dtype, int64_t batch, int64_t length);
  [[nodiscard]] int64_t tokens() const { return batch * length; }
  [[nodiscard]] int64_t q_width() const { return heads * head_dim; }
  [[nodiscard]] int64_t kv_width() const { return kv_heads * head_dim; }
  [[nodiscard]] AttentionShape attention() const;
  [[nodiscard]] LayerShape of_layer(const Arch& arch, int64_t layer) const;
};

struct NormParams {
  Tensor weight, bias;  // [H]; [H] for LayerNorm, else empty
};

/// What a norm's backward needs of its forward.
struct NormStatistics {
  Tensor rstd, mean;  // [N] fp32; mean for LayerNorm only
  NormStatistics(bool layer_norm, int64_t rows, Scratch& scratch);
  static size_t bytes(bool layer_norm, int64_t rows);
};

/// y = norm(x): LayerNorm where the parameters have a bias, else RMSNorm.  y, x: [N, H] act.
void norm_forward(Ops& ops, Stream& stream, Tensor y, const NormStatistics& stats, Tensor x,
                  const NormParams& w, float eps);
/// dx = dresidual + the norm's gradient; adds to what is not empty of dw. dresidual may be empty, or dx.
void norm_backward(Ops& ops, Stream& stream, Tensor dx, const NormParams& dw, Tensor dresidual, Tensor dy,
                   Tensor x, const NormParams& w, const NormStatistics& stats);

/// What a layer computes on the way from its input to its output; backward reads all of it. N = B*T.
struct LayerActivations {
  Tensor norm1;  // [N, H] act
  NormStatistics stats1;
  Tensor q, k, v;         // [N, heads*D], [N, kv_heads*D] act; q and k after the rotation
  Tensor raw_q, raw_k;    // the same before their norm; with qk_norm only
  Tensor rstd_q, rstd_k;  // [N*heads], [N*kv_heads] fp32; with qk_norm only
  Tensor attn, lse;       // [N, heads*D] act, [B, heads, T] fp32
  Tensor mid;             // [N, H] act: input + attention's output
  Tensor norm2;           // [N, H] act
  NormStatistics stats2;
  Tensor gate, up, act;  // [N, F] act
  LayerActivations(const LayerShape& shape, Scratch& scratch);
  static size_t bytes(const LayerShape& shape);
};

/// Gradients inside a layer's backward.
struct LayerGradients {
  Tensor act;            // [N, F] act
  Tensor norm, mid;      // [N, H] act
  Tensor attn, q, k, v;  // [N, heads*D], [N, heads*D], [N, kv_heads*D] act
  LayerGradients(const LayerShape& shape, Scratch& scratch);
  static size_t bytes(const LayerShape& shape);
};

struct LinearParams {
  Tensor weight, bias;  // [O, I]; [O] or empty
};

/// The layer's parameters (or their fp32 gradients, empty for frozen parameters) as tensors in the block's
/// flat memory.
struct LayerParams {
  NormParams norm1, norm2;
  Tensor q_norm, k_norm;  // [D], or empty
  LinearParams q, k, v, o, gate, up, down;
  LayerParams(const ParamTable& table, BlockId block, Tensor flat);
};

struct RotaryTables {
  Tensor cos, sin;  // [T, D/2] fp32
};

/// y = layer(x).  y, x: [N, H] act; y is another memory than x.
void layer_forward(Ops& ops, Stream& stream, const LayerShape& shape, const RotaryTables& rotary,
                   const LayerParams& w, LayerActivations& a, Tensor y, Tensor x);
/// The same without the last product: what backward needs of a layer whose activations were not kept.
void layer_recompute(Ops& ops, Stream& stream, const LayerShape& shape, const RotaryTables& rotary,
                     const LayerParams& w, LayerActivations& a, Tensor x);
/// d: on entry the gradient of y, on return that of x, [N, H] act. Adds the gradients of trained parameters
/// to dw.
/// Destroys a.gate, a.up, a.q and a.k.
void layer_backward(Ops& ops, Stream& stream, const LayerShape& shape, const RotaryTables& rotary,
                    const LayerParams& w, const LayerParams& dw, LayerActivations& a, LayerGradients& g,
                    Tensor d, Tensor x);

}  // namespace tandem
