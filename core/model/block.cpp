#include "core/model/block.h"

#include <cmath>

namespace tandem {

namespace {

size_t rounded(int64_t elements, DType dtype) {
  return Arena::rounded(static_cast<size_t>(elements) * size_of(dtype));
}

/// y = x * w^T + bias, or y += that.
void project(Ops& ops, Stream& s, Tensor y, Tensor x, const LinearParams& w, Into into = Into::replace) {
  ops.linear_forward(s, y, x, w.weight, into);
  if (!w.bias.empty()) ops.add_bias(s, y, w.bias);
}

/// The gradients of a projection's trained parameters.
void project_backward(Ops& ops, Stream& s, const LinearParams& dw, Tensor dy, Tensor x) {
  if (!dw.weight.empty()) ops.linear_backward_weight(s, dw.weight, dy, x);
  if (!dw.bias.empty()) ops.bias_backward(s, dw.bias, dy);
}

/// [N, heads*D] as one row per head.
Tensor heads_of(const LayerShape& shape, Tensor t) {
  return t.view({t.numel() / shape.head_dim, shape.head_dim});
}

/// q and k from the normed input, before the rotation.
void queries_and_keys(Ops& ops, Stream& s, const LayerShape& shape, const LayerParams& w,
                      LayerActivations& a) {
  project(ops, s, shape.qk_norm ? a.raw_q : a.q, a.norm1, w.q);
  project(ops, s, shape.qk_norm ? a.raw_k : a.k, a.norm1, w.k);
  if (!shape.qk_norm) return;
  ops.rms_norm_forward(s, heads_of(shape, a.q), a.rstd_q, heads_of(shape, a.raw_q), w.q_norm, shape.eps);
  ops.rms_norm_forward(s, heads_of(shape, a.k), a.rstd_k, heads_of(shape, a.raw_k), w.k_norm, shape.eps);
}

/// Takes the gradients of q and k back through their norm; they move into the memory of a.q and a.k.
void qk_norm_backward(Ops& ops, Stream& s, const LayerShape& shape, const LayerParams& w,
                      const LayerParams& dw, LayerActivations& a, Tensor& dq, Tensor& dk) {
  ops.rms_norm_backward(s, heads_of(shape, a.q), dw.q_norm, Tensor{}, heads_of(shape, dq),
                        heads_of(shape, a.raw_q), w.q_norm, a.rstd_q);
  ops.rms_norm_backward(s, heads_of(shape, a.k), dw.k_norm, Tensor{}, heads_of(shape, dk),
                        heads_of(shape, a.raw_k), w.k_norm, a.rstd_k);
  dq = a.q;
  dk = a.k;
}

/// A no-op for models whose positions are learned.
void rotate(Ops& ops, Stream& s, const RotaryTables& rotary, Tensor t, int direction) {
  if (!rotary.cos.empty()) ops.rope(s, t, t, rotary.cos, rotary.sin, direction);
}

/// a.act from the normed input of the MLP.
void mlp_forward(Ops& ops, Stream& s, const LayerShape& shape, const LayerParams& w, LayerActivations& a) {
  project(ops, s, a.up, a.norm2, w.up);
  if (shape.gelu) return ops.gelu_forward(s, a.act, a.up);
  project(ops, s, a.gate, a.norm2, w.gate);
  ops.swiglu_forward(s, a.act, a.gate, a.up);
}

/// g.norm from g.act; the gradients of gate and up take their memory.
void mlp_backward(Ops& ops, Stream& s, const LayerShape& shape, const LayerParams& w, const LayerParams& dw,
                  LayerActivations& a, LayerGradients& g) {
  if (shape.gelu)
    ops.gelu_backward(s, a.up, g.act, a.up);
  else
    ops.swiglu_backward(s, a.gate, a.up, g.act, a.gate, a.up);
  project_backward(ops, s, dw.up, a.up, a.norm2);
  ops.linear_backward_input(s, g.norm, a.up, w.up.weight);
  if (shape.gelu) return;
  project_backward(ops, s, dw.gate, a.gate, a.norm2);
  ops.linear_backward_input(s, g.norm, a.gate, w.gate.weight, Into::add);
}

/// The attention half: mid = x + attention(norm(x)).
void attention_forward(Ops& ops, Stream& s, const LayerShape& shape, const RotaryTables& rotary,
                       const LayerParams& w, LayerActivations& a, Tensor x) {
  const int64_t B = shape.batch, T = shape.length, D = shape.head_dim;
  norm_forward(ops, s, a.norm1, a.stats1, x, w.norm1, shape.eps);
  queries_and_keys(ops, s, shape, w, a);
  project(ops, s, a.v, a.norm1, w.v);
  const Tensor q = a.q.view({B, T, shape.heads, D}), k = a.k.view({B, T, shape.kv_heads, D});
  rotate(ops, s, rotary, q, 1);
  rotate(ops, s, rotary, k, 1);
  ops.attention_forward(s, a.attn.view({B, T, shape.heads, D}), a.lse, q, k,
                        a.v.view({B, T, shape.kv_heads, D}), shape.attention());
  s.copy(a.mid, x);
  project(ops, s, a.mid, a.attn, w.o, Into::add);
}

}  // namespace

NormStatistics::NormStatistics(bool layer_norm, int64_t rows, Scratch& scratch)
    : rstd(scratch.take(DType::f32, {rows})) {
  if (layer_norm) mean = scratch.take(DType::f32, {rows});
}

size_t NormStatistics::bytes(bool layer_norm, int64_t rows) {
  return (layer_norm ? 2 : 1) * rounded(rows, DType::f32);
}

void norm_forward(Ops& ops, Stream& s, Tensor y, const NormStatistics& stats, Tensor x, const NormParams& w,
                  float eps) {
  if (w.bias.empty())
    ops.rms_norm_forward(s, y, stats.rstd, x, w.weight, eps);
  else
    ops.layer_norm_forward(s, y, stats.mean, stats.rstd, x, w.weight, w.bias, eps);
}

void norm_backward(Ops& ops, Stream& s, Tensor dx, const NormParams& dw, Tensor dresidual, Tensor dy,
                   Tensor x, const NormParams& w, const NormStatistics& stats) {
  if (w.bias.empty())
    ops.rms_norm_backward(s, dx, dw.weight, dresidual, dy, x, w.weight, stats.rstd);
  else
    ops.layer_norm_backward(s, dx, dw.weight, dw.bias, dresidual, dy, x, w.weight, stats.mean, stats.rstd);
}

LayerShape::LayerShape(const Arch& arch, DType dtype_, int64_t batch_, int64_t length_)
    : batch(batch_),
      length(length_),
      hidden(arch.hidden),
      intermediate(arch.intermediate),
      heads(arch.heads),
      kv_heads(arch.kv_heads),
      head_dim(arch.head_dim),
      eps(static_cast<float>(arch.norm_eps)),
      layer_norm(arch.layer_norm),
      gelu(arch.gelu),
      qk_norm(arch.qk_norm),
      dtype(dtype_) {}

AttentionShape LayerShape::attention() const {
  return {batch,
          length,
          heads,
          kv_heads,
          head_dim,
          window,
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)))};
}

LayerShape LayerShape::of_layer(const Arch& arch, int64_t layer) const {
  LayerShape shape = *this;
  shape.window = arch.window(layer);
  return shape;
}

LayerActivations::LayerActivations(const LayerShape& s, Scratch& scratch)
    : norm1(scratch.take(s.dtype, {s.tokens(), s.hidden})),
      stats1(s.layer_norm, s.tokens(), scratch),
      q(scratch.take(s.dtype, {s.tokens(), s.q_width()})),
      k(scratch.take(s.dtype, {s.tokens(), s.kv_width()})),
      v(scratch.take(s.dtype, {s.tokens(), s.kv_width()})),
      attn(scratch.take(s.dtype, {s.tokens(), s.q_width()})),
      lse(scratch.take(DType::f32, {s.batch, s.heads, s.length})),
      mid(scratch.take(s.dtype, {s.tokens(), s.hidden})),
      norm2(scratch.take(s.dtype, {s.tokens(), s.hidden})),
      stats2(s.layer_norm, s.tokens(), scratch),
      up(scratch.take(s.dtype, {s.tokens(), s.intermediate})),
      act(scratch.take(s.dtype, {s.tokens(), s.intermediate})) {
  if (!s.gelu) gate = scratch.take(s.dtype, {s.tokens(), s.intermediate});
  if (!s.qk_norm) return;
  raw_q = scratch.take(s.dtype, {s.tokens(), s.q_width()});
  raw_k = scratch.take(s.dtype, {s.tokens(), s.kv_width()});
  rstd_q = scratch.take(DType::f32, {s.tokens() * s.heads});
  rstd_k = scratch.take(DType::f32, {s.tokens() * s.kv_heads});
}

size_t LayerActivations::bytes(const LayerShape& s) {
  const int64_t n = s.tokens();
  const size_t qk_norm = rounded(n * s.q_width(), s.dtype) + rounded(n * s.kv_width(), s.dtype) +
                         rounded(n * s.heads, DType::f32) + rounded(n * s.kv_heads, DType::f32);
  return 3 * rounded(n * s.hidden, s.dtype) + 2 * NormStatistics::bytes(s.layer_norm, n) +
         2 * rounded(n * s.q_width(), s.dtype) + 2 * rounded(n * s.kv_width(), s.dtype) +
         rounded(n * s.heads, DType::f32) + (s.gelu ? 2 : 3) * rounded(n * s.intermediate, s.dtype) +
         (s.qk_norm ? qk_norm : 0);
}

LayerGradients::LayerGradients(const LayerShape& s, Scratch& scratch)
    : act(scratch.take(s.dtype, {s.tokens(), s.intermediate})),
      norm(scratch.take(s.dtype, {s.tokens(), s.hidden})),
      mid(scratch.take(s.dtype, {s.tokens(), s.hidden})),
      attn(scratch.take(s.dtype, {s.tokens(), s.q_width()})),
      q(scratch.take(s.dtype, {s.tokens(), s.q_width()})),
      k(scratch.take(s.dtype, {s.tokens(), s.kv_width()})),
      v(scratch.take(s.dtype, {s.tokens(), s.kv_width()})) {}

size_t LayerGradients::bytes(const LayerShape& s) {
  const int64_t n = s.tokens();
  return rounded(n * s.intermediate, s.dtype) + 2 * rounded(n * s.hidden, s.dtype) +
         2 * rounded(n * s.q_width(), s.dtype) + 2 * rounded(n * s.kv_width(), s.dtype);
}

LayerParams::LayerParams(const ParamTable& table, BlockId block, Tensor flat) {
  const auto part = [&](Role role) { return table.part(block, role, flat); };
  norm1 = {part(Role::norm1), part(Role::norm1_bias)};
  norm2 = {part(Role::norm2), part(Role::norm2_bias)};
  q_norm = part(Role::q_norm);
  k_norm = part(Role::k_norm);
  q = {part(Role::q), part(Role::q_bias)};
  k = {part(Role::k), part(Role::k_bias)};
  v = {part(Role::v), part(Role::v_bias)};
  o = {part(Role::o), part(Role::o_bias)};
  gate = {part(Role::gate), part(Role::gate_bias)};
  up = {part(Role::up), part(Role::up_bias)};
  down = {part(Role::down), part(Role::down_bias)};
  const auto cut = [&](Role role, Tensor LinearParams::*member) {
    const Tensor qkv = part(role);
    if (qkv.empty()) return;
    const int64_t rows = qkv.dim(0) / 3;
    q.*member = qkv.rows(0, rows);
    k.*member = qkv.rows(rows, rows);
    v.*member = qkv.rows(2 * rows, rows);
  };
  cut(Role::qkv, &LinearParams::weight);
  cut(Role::qkv_bias, &LinearParams::bias);
}

void layer_recompute(Ops& ops, Stream& s, const LayerShape& shape, const RotaryTables& rotary,
                     const LayerParams& w, LayerActivations& a, Tensor x) {
  attention_forward(ops, s, shape, rotary, w, a, x);
  norm_forward(ops, s, a.norm2, a.stats2, a.mid, w.norm2, shape.eps);
  mlp_forward(ops, s, shape, w, a);
}

void layer_forward(Ops& ops, Stream& s, const LayerShape& shape, const RotaryTables& rotary,
                   const LayerParams& w, LayerActivations& a, Tensor y, Tensor x) {
  layer_recompute(ops, s, shape, rotary, w, a, x);
  s.copy(y, a.mid);
  project(ops, s, y, a.act, w.down, Into::add);
}

void layer_backward(Ops& ops, Stream& s, const LayerShape& shape, const RotaryTables& rotary,
                    const LayerParams& w, const LayerParams& dw, LayerActivations& a, LayerGradients& g,
                    Tensor d, Tensor x) {
  const int64_t B = shape.batch, T = shape.length, D = shape.head_dim;
  project_backward(ops, s, dw.down, d, a.act);
  ops.linear_backward_input(s, g.act, d, w.down.weight);
  mlp_backward(ops, s, shape, w, dw, a, g);
  norm_backward(ops, s, g.mid, dw.norm2, d, g.norm, a.mid, w.norm2, a.stats2);

  project_backward(ops, s, dw.o, g.mid, a.attn);
  ops.linear_backward_input(s, g.attn, g.mid, w.o.weight);
  const auto q_view = [&](Tensor t) { return t.view({B, T, shape.heads, D}); };
  const auto kv_view = [&](Tensor t) { return t.view({B, T, shape.kv_heads, D}); };
  ops.attention_backward(s, q_view(g.q), kv_view(g.k), kv_view(g.v), q_view(g.attn), q_view(a.q),
                         kv_view(a.k), kv_view(a.v), q_view(a.attn), a.lse, shape.attention());
  rotate(ops, s, rotary, q_view(g.q), -1);
  rotate(ops, s, rotary, kv_view(g.k), -1);
  Tensor dq = g.q, dk = g.k;
  if (shape.qk_norm) qk_norm_backward(ops, s, shape, w, dw, a, dq, dk);
  project_backward(ops, s, dw.q, dq, a.norm1);
  project_backward(ops, s, dw.k, dk, a.norm1);
  project_backward(ops, s, dw.v, g.v, a.norm1);
  ops.linear_backward_input(s, g.norm, dq, w.q.weight);
  ops.linear_backward_input(s, g.norm, dk, w.k.weight, Into::add);
  ops.linear_backward_input(s, g.norm, g.v, w.v.weight, Into::add);
  norm_backward(ops, s, d, dw.norm1, g.mid, g.norm, x, w.norm1, a.stats1);
}

}  // namespace tandem
