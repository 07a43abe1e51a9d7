#include "core/model/block.h"

#include <cmath>

namespace tandem {

namespace {

size_t rounded(int64_t elements, DType dtype) {
  return Arena::rounded(static_cast<size_t>(elements) * size_of(dtype));
}

/// The attention half: mid = x + attention(norm(x)).
void attention_forward(Ops& ops, Stream& s, const LayerShape& shape, const RotaryTables& rotary,
                       const LayerParams& w, LayerActivations& a, Tensor x) {
  const int64_t B = shape.batch, T = shape.length, D = shape.head_dim;
  ops.rms_norm_forward(s, a.norm1, a.rstd1, x, w.norm1, shape.eps);
  ops.linear_forward(s, a.q, a.norm1, w.q);
  ops.linear_forward(s, a.k, a.norm1, w.k);
  ops.linear_forward(s, a.v, a.norm1, w.v);
  const Tensor q = a.q.view({B, T, shape.heads, D}), k = a.k.view({B, T, shape.kv_heads, D});
  ops.rope(s, q, q, rotary.cos, rotary.sin, 1);
  ops.rope(s, k, k, rotary.cos, rotary.sin, 1);
  ops.attention_forward(s, a.attn.view({B, T, shape.heads, D}), a.lse, q, k,
                        a.v.view({B, T, shape.kv_heads, D}), shape.attention());
  s.copy(a.mid, x);
  ops.linear_forward(s, a.mid, a.attn, w.o, Into::add);
}

}  // namespace

LayerShape::LayerShape(const Arch& arch, DType dtype_, int64_t batch_, int64_t length_)
    : batch(batch_),
      length(length_),
      hidden(arch.hidden),
      intermediate(arch.intermediate),
      heads(arch.heads),
      kv_heads(arch.kv_heads),
      head_dim(arch.head_dim),
      eps(static_cast<float>(arch.norm_eps)),
      dtype(dtype_) {}

AttentionShape LayerShape::attention() const {
  return {batch,
          length,
          heads,
          kv_heads,
          head_dim,
          0,
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)))};
}

LayerActivations::LayerActivations(const LayerShape& s, Scratch& scratch)
    : norm1(scratch.take(s.dtype, {s.tokens(), s.hidden})),
      rstd1(scratch.take(DType::f32, {s.tokens()})),
      q(scratch.take(s.dtype, {s.tokens(), s.q_width()})),
      k(scratch.take(s.dtype, {s.tokens(), s.kv_width()})),
      v(scratch.take(s.dtype, {s.tokens(), s.kv_width()})),
      attn(scratch.take(s.dtype, {s.tokens(), s.q_width()})),
      lse(scratch.take(DType::f32, {s.batch, s.heads, s.length})),
      mid(scratch.take(s.dtype, {s.tokens(), s.hidden})),
      norm2(scratch.take(s.dtype, {s.tokens(), s.hidden})),
      rstd2(scratch.take(DType::f32, {s.tokens()})),
      gate(scratch.take(s.dtype, {s.tokens(), s.intermediate})),
      up(scratch.take(s.dtype, {s.tokens(), s.intermediate})),
      act(scratch.take(s.dtype, {s.tokens(), s.intermediate})) {}

size_t LayerActivations::bytes(const LayerShape& s) {
  const int64_t n = s.tokens();
  return 3 * rounded(n * s.hidden, s.dtype) + 2 * rounded(n, DType::f32) +
         2 * rounded(n * s.q_width(), s.dtype) + 2 * rounded(n * s.kv_width(), s.dtype) +
         rounded(n * s.heads, DType::f32) + 3 * rounded(n * s.intermediate, s.dtype);
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
  const auto specs = table.of_block(block);
  Tensor* const fields[] = {&norm1, &q, &k, &v, &o, &norm2, &gate, &up, &down};
  ASSERT(specs.size() == std::size(fields), "a layer of {} parameters", specs.size());
  for (size_t i = 0; i < specs.size(); ++i) *fields[i] = ParamTable::view(specs[i], flat);
}

void layer_recompute(Ops& ops, Stream& s, const LayerShape& shape, const RotaryTables& rotary,
                     const LayerParams& w, LayerActivations& a, Tensor x) {
  attention_forward(ops, s, shape, rotary, w, a, x);
  ops.rms_norm_forward(s, a.norm2, a.rstd2, a.mid, w.norm2, shape.eps);
  ops.linear_forward(s, a.gate, a.norm2, w.gate);
  ops.linear_forward(s, a.up, a.norm2, w.up);
  ops.swiglu_forward(s, a.act, a.gate, a.up);
}

void layer_forward(Ops& ops, Stream& s, const LayerShape& shape, const RotaryTables& rotary,
                   const LayerParams& w, LayerActivations& a, Tensor y, Tensor x) {
  layer_recompute(ops, s, shape, rotary, w, a, x);
  s.copy(y, a.mid);
  ops.linear_forward(s, y, a.act, w.down, Into::add);
}

void layer_backward(Ops& ops, Stream& s, const LayerShape& shape, const RotaryTables& rotary,
                    const LayerParams& w, const LayerParams& dw, LayerActivations& a, LayerGradients& g,
                    Tensor d, Tensor x) {
  const int64_t B = shape.batch, T = shape.length, D = shape.head_dim;
  ops.linear_backward_weight(s, dw.down, d, a.act);
  ops.linear_backward_input(s, g.act, d, w.down);
  ops.swiglu_backward(s, a.gate, a.up, g.act, a.gate, a.up);
  ops.linear_backward_weight(s, dw.gate, a.gate, a.norm2);
  ops.linear_backward_weight(s, dw.up, a.up, a.norm2);
  ops.linear_backward_input(s, g.norm, a.gate, w.gate);
  ops.linear_backward_input(s, g.norm, a.up, w.up, Into::add);
  ops.rms_norm_backward(s, g.mid, dw.norm2, d, g.norm, a.mid, w.norm2, a.rstd2);

  ops.linear_backward_weight(s, dw.o, g.mid, a.attn);
  ops.linear_backward_input(s, g.attn, g.mid, w.o);
  const auto q_view = [&](Tensor t) { return t.view({B, T, shape.heads, D}); };
  const auto kv_view = [&](Tensor t) { return t.view({B, T, shape.kv_heads, D}); };
  ops.attention_backward(s, q_view(g.q), kv_view(g.k), kv_view(g.v), q_view(g.attn), q_view(a.q),
                         kv_view(a.k), kv_view(a.v), q_view(a.attn), a.lse, shape.attention());
  ops.rope(s, q_view(g.q), q_view(g.q), rotary.cos, rotary.sin, -1);
  ops.rope(s, kv_view(g.k), kv_view(g.k), rotary.cos, rotary.sin, -1);
  ops.linear_backward_weight(s, dw.q, g.q, a.norm1);
  ops.linear_backward_weight(s, dw.k, g.k, a.norm1);
  ops.linear_backward_weight(s, dw.v, g.v, a.norm1);
  ops.linear_backward_input(s, g.norm, g.q, w.q);
  ops.linear_backward_input(s, g.norm, g.k, w.k, Into::add);
  ops.linear_backward_input(s, g.norm, g.v, w.v, Into::add);
  ops.rms_norm_backward(s, d, dw.norm1, g.mid, g.norm, x, w.norm1, a.rstd1);
}

}  // namespace tandem
