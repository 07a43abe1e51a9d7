#include "gpu/ops_checks.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::gpu::checks {

namespace {

bool is_act(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

std::string text_of(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// A tensor of a call has this type and shape; our own bug otherwise.
void expect(std::string_view name, const Tensor& t, DType dtype, std::initializer_list<int64_t> shape) {
  ASSERT(t.dtype() == dtype, "{} is {}, not {}", name, name_of(t.dtype()), name_of(dtype));
  ASSERT(std::ranges::equal(t.shape(), shape), "{} is {}, not {}", name, text_of(t.shape()),
         text_of({shape.begin(), shape.size()}));
}

void expect_act(std::string_view name, const Tensor& t) {
  ASSERT(is_act(t.dtype()), "{} is {}, not an activation type", name, name_of(t.dtype()));
}

void expect_rank(std::string_view name, const Tensor& t, int rank) {
  ASSERT(t.rank() == rank, "{} has rank {}, not {}", name, t.rank(), rank);
}

bool same_memory(const Tensor& a, const Tensor& b) { return !a.empty() && a.raw() == b.raw(); }

void expect_layer_norm(const Tensor& x, const Tensor& w, const Tensor& mean, const Tensor& rstd) {
  expect_act("x", x);
  expect_rank("x", x, 2);
  expect("w", w, x.dtype(), {x.dim(1)});
  expect("mean", mean, DType::f32, {x.dim(0)});
  expect("rstd", rstd, DType::f32, {x.dim(0)});
}

void expect_attention(const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& lse) {
  expect_act("q", q);
  ASSERT(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "{} heads over {} kv heads", s.heads, s.kv_heads);
  ASSERT(s.window >= 0, "window {}", s.window);
  expect("q", q, q.dtype(), {s.batch, s.length, s.heads, s.head_dim});
  for (const auto& [name, t] : {std::pair{"k", k}, {"v", v}})
    expect(name, t, q.dtype(), {s.batch, s.length, s.kv_heads, s.head_dim});
  expect("lse", lse, DType::f32, {s.batch, s.heads, s.length});
}

}  // namespace

void embedding_forward(const Tensor& y, const Tensor& table, const Tensor& tokens) {
  expect_act("y", y);
  expect_rank("table", table, 2);
  expect("tokens", tokens, DType::i32, {tokens.numel()});
  expect("y", y, table.dtype(), {tokens.numel(), table.dim(1)});
}
void embedding_backward(const Tensor& dtable, const Tensor& dy, const Tensor& tokens) {
  expect_act("dy", dy);
  expect_rank("dtable", dtable, 2);
  expect("dtable", dtable, DType::f32, {dtable.dim(0), dtable.dim(1)});
  expect("tokens", tokens, DType::i32, {tokens.numel()});
  expect("dy", dy, dy.dtype(), {tokens.numel(), dtable.dim(1)});
}
void rms_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& w) {
  expect_act("x", x);
  expect_rank("x", x, 2);
  const int64_t rows = x.dim(0), width = x.dim(1);
  expect("y", y, x.dtype(), {rows, width});
  expect("w", w, x.dtype(), {width});
  expect("rstd", rstd, DType::f32, {rows});
}
void rms_norm_backward(const Tensor& dx, const Tensor& dw, const Tensor& dresidual, const Tensor& dy,
                       const Tensor& x, const Tensor& w, const Tensor& rstd) {
  expect_act("x", x);
  expect_rank("x", x, 2);
  const int64_t rows = x.dim(0), width = x.dim(1);
  expect("dx", dx, x.dtype(), {rows, width});
  if (!dw.empty()) expect("dw", dw, DType::f32, {width});
  if (!dresidual.empty()) expect("dresidual", dresidual, x.dtype(), {rows, width});
  expect("dy", dy, x.dtype(), {rows, width});
  expect("w", w, x.dtype(), {width});
  expect("rstd", rstd, DType::f32, {rows});
}
void layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& w, const Tensor& b) {
  expect_layer_norm(x, w, mean, rstd);
  expect("y", y, x.dtype(), {x.dim(0), x.dim(1)});
  expect("b", b, x.dtype(), {x.dim(1)});
}
void layer_norm_backward(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& dresidual,
                         const Tensor& dy, const Tensor& x, const Tensor& w, const Tensor& mean,
                         const Tensor& rstd) {
  expect_layer_norm(x, w, mean, rstd);
  for (const auto& [name, t] : {std::pair{"dx", dx}, {"dy", dy}})
    expect(name, t, x.dtype(), {x.dim(0), x.dim(1)});
  if (!dresidual.empty()) expect("dresidual", dresidual, x.dtype(), {x.dim(0), x.dim(1)});
  for (const auto& [name, t] : {std::pair{"dw", dw}, {"db", db}})
    if (!t.empty()) expect(name, t, DType::f32, {x.dim(1)});
}
ProductShape product(const char* verb, Storage storage, const Tensor& c, const Tensor& a, const Tensor& b) {
  expect_act(verb, a);
  for (const Tensor& t : {a, b, c}) expect_rank(verb, t, 2);
  const bool a_turned = storage == Storage::tn, b_turned = storage == Storage::nt;
  const int64_t m = a.dim(a_turned ? 1 : 0), k = a.dim(a_turned ? 0 : 1), n = b.dim(b_turned ? 0 : 1);
  expect(verb, b, a.dtype(), {b_turned ? n : k, b_turned ? k : n});
  expect(verb, c, c.dtype() == DType::f32 ? DType::f32 : a.dtype(), {m, n});
  return {m, n, k};
}
void weight_gradient(const Tensor& dw) {
  ASSERT(dw.dtype() == DType::f32, "dw is {}, not float32", name_of(dw.dtype()));
}
void add_bias(const Tensor& y, const Tensor& bias) {
  expect_act("y", y);
  expect_rank("y", y, 2);
  expect("bias", bias, y.dtype(), {y.dim(1)});
}
void bias_backward(const Tensor& dbias, const Tensor& dy) {
  expect_act("dy", dy);
  expect_rank("dy", dy, 2);
  expect("dbias", dbias, DType::f32, {dy.dim(1)});
}
void rope(const Tensor& y, const Tensor& x, const Tensor& cos, const Tensor& sin, int direction) {
  expect_act("x", x);
  expect_rank("x", x, 4);
  expect_rank("cos", cos, 2);
  ASSERT(x.dim(3) % 2 == 0, "head size {} is odd", x.dim(3));
  ASSERT(cos.dim(0) >= x.dim(1), "angles for {} positions of {}", cos.dim(0), x.dim(1));
  ASSERT(direction == 1 || direction == -1, "direction {}", direction);
  expect("y", y, x.dtype(), {x.dim(0), x.dim(1), x.dim(2), x.dim(3)});
  expect("cos", cos, DType::f32, {cos.dim(0), x.dim(3) / 2});
  expect("sin", sin, DType::f32, {cos.dim(0), x.dim(3) / 2});
}
void attention_forward(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                       const Tensor& v, const AttentionShape& s) {
  expect_attention(s, q, k, v, lse);
  expect("out", out, q.dtype(), {s.batch, s.length, s.heads, s.head_dim});
}
void attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                        const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                        const Tensor& lse, const AttentionShape& s) {
  expect_attention(s, q, k, v, lse);
  const DType act = q.dtype();
  for (const auto& [name, t] : {std::pair{"dq", dq}, {"dout", dout}, {"out", out}})
    expect(name, t, act, {s.batch, s.length, s.heads, s.head_dim});
  for (const auto& [name, t] : {std::pair{"dk", dk}, {"dv", dv}})
    expect(name, t, act, {s.batch, s.length, s.kv_heads, s.head_dim});
}
void swiglu_forward(const Tensor& y, const Tensor& gate, const Tensor& up) {
  expect_act("y", y);
  expect_rank("y", y, 2);
  for (const auto& [name, t] : {std::pair{"gate", gate}, {"up", up}})
    expect(name, t, y.dtype(), {y.dim(0), y.dim(1)});
}
void swiglu_backward(const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                     const Tensor& up) {
  expect_act("dy", dy);
  expect_rank("dy", dy, 2);
  for (const auto& [name, t] : {std::pair{"dgate", dgate}, {"dup", dup}, {"gate", gate}, {"up", up}})
    expect(name, t, dy.dtype(), {dy.dim(0), dy.dim(1)});
}
void gelu_forward(const Tensor& y, const Tensor& x) {
  expect_act("x", x);
  expect_rank("x", x, 2);
  expect("y", y, x.dtype(), {x.dim(0), x.dim(1)});
}
void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x) {
  expect_act("x", x);
  expect_rank("x", x, 2);
  for (const auto& [name, t] : {std::pair{"dx", dx}, {"dy", dy}})
    expect(name, t, x.dtype(), {x.dim(0), x.dim(1)});
}
void add(const Tensor& y, const Tensor& a, const Tensor& b) {
  expect_act("y", y);
  for (const auto& [name, t] : {std::pair{"a", a}, {"b", b}})
    ASSERT(t.dtype() == y.dtype() && t.numel() == y.numel(), "{} is {} {}, y {} {}", name, t.numel(),
           name_of(t.dtype()), y.numel(), name_of(y.dtype()));
}
void cast(const Tensor& dst, const Tensor& src) {
  expect_act("dst", dst);
  expect_act("src", src);
  ASSERT(dst.numel() == src.numel(), "{} elements cast to {}", src.numel(), dst.numel());
}
void softmax_cross_entropy(const Tensor& loss, const Tensor& dlogits, const Tensor& logits,
                           const Tensor& targets) {
  expect_rank("logits", logits, 2);
  const int64_t rows = logits.dim(0), width = logits.dim(1);
  expect("logits", logits, DType::f32, {rows, width});
  expect("loss", loss, DType::f64, {1});
  expect("targets", targets, DType::i32, {rows});
  if (!dlogits.empty()) {
    expect_act("dlogits", dlogits);
    expect("dlogits", dlogits, dlogits.dtype(), {rows, width});
    ASSERT(!same_memory(dlogits, logits) || dlogits.dtype() == DType::f32, "{} dlogits over fp32 logits",
           name_of(dlogits.dtype()));
  }
}
void sum_of_squares(const Tensor& out, const Tensor& x) {
  expect_act("x", x);
  expect("out", out, DType::f64, {2});
}
void adam(const AdamTensors& t) {
  const int64_t n = t.master.numel();
  for (const auto& [name, x] :
       {std::pair{"master", t.master}, {"moment1", t.moment1}, {"moment2", t.moment2}})
    expect(name, x, DType::f32, {n});
  for (const auto& [name, x] : {std::pair{"weight_out", t.weight_out}, {"grad", t.grad}}) {
    expect_act(name, x);
    expect(name, x, x.dtype(), {n});
  }
  ASSERT(!same_memory(t.weight_out, t.grad) || t.weight_out.dtype() == t.grad.dtype(),
         "weights of {} over gradients of {}", name_of(t.weight_out.dtype()), name_of(t.grad.dtype()));
}
void round_weights(const Tensor& dst, const Tensor& src) {
  expect_act("dst", dst);
  ASSERT(src.dtype() == DType::f32 && dst.numel() == src.numel(), "{} {} rounded to {}", src.numel(),
         name_of(src.dtype()), dst.numel());
}

}  // namespace tandem::gpu::checks
