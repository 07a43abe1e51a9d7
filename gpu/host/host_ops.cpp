#include "gpu/host/host_ops.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "gpu/host/kernels/attention.h"
#include "gpu/host/kernels/bias.h"
#include "gpu/host/kernels/embedding.h"
#include "gpu/host/kernels/layer_norm.h"
#include "gpu/host/kernels/loss.h"
#include "gpu/host/kernels/norm.h"
#include "gpu/host/kernels/optimizer.h"
#include "gpu/host/kernels/pointwise.h"
#include "gpu/host/linear.h"

namespace tandem::gpu {

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

/// A kernel's name, and its floating-point operations where these are what it costs.
struct Label {
  Label(const char* name, double flops = 0) : name(name), flops(flops) {}  // NOLINT: most are names alone
  const char* name;
  double flops;
};

/// Of `products` products over the pairs of rows and keys that attention looks at.
double attention_flops(const AttentionShape& s, int products) {
  const auto length = static_cast<double>(s.length);
  const double window = s.window > 0 ? std::min(static_cast<double>(s.window), length) : length;
  const double pairs = window * (window + 1) / 2 + (length - window) * window;
  return 2.0 * products * static_cast<double>(s.batch * s.heads * s.head_dim) * pairs;
}

bool same_memory(const Tensor& a, const Tensor& b) { return !a.empty() && a.raw() == b.raw(); }

/// A kernel's arguments as it runs: tensors readable, the rest as it is.
Tensor opened(const KernelContext& context, const Tensor& t) { return t.empty() ? t : context.open(t); }
template <class T>
const T& opened(const KernelContext&, const T& value) {
  return value;
}

class HostOps : public Ops {
 public:
  HostOps(KernelQueue& queue, const RowKernels& rows) : queue_(queue), rows_(rows) {}

  void embedding_forward(Stream& stream, Tensor y, Tensor table, Tensor tokens) override {
    expect_act("y", y);
    expect_rank("table", table, 2);
    expect("tokens", tokens, DType::i32, {tokens.numel()});
    expect("y", y, table.dtype(), {tokens.numel(), table.dim(1)});
    launch(stream, "embedding_forward", {table, tokens}, {y}, gpu::embedding_forward, y, table, tokens);
  }
  void embedding_backward(Stream& stream, Tensor dtable, Tensor dy, Tensor tokens) override {
    expect_act("dy", dy);
    expect_rank("dtable", dtable, 2);
    expect("dtable", dtable, DType::f32, {dtable.dim(0), dtable.dim(1)});
    expect("tokens", tokens, DType::i32, {tokens.numel()});
    expect("dy", dy, dy.dtype(), {tokens.numel(), dtable.dim(1)});
    launch(stream, "embedding_backward", {dtable, dy, tokens}, {dtable}, gpu::embedding_backward, dtable, dy,
           tokens);
  }

  void rms_norm_forward(Stream& stream, Tensor y, Tensor rstd, Tensor x, Tensor w, float eps) override {
    expect_act("x", x);
    expect_rank("x", x, 2);
    const int64_t rows = x.dim(0), width = x.dim(1);
    expect("y", y, x.dtype(), {rows, width});
    expect("w", w, x.dtype(), {width});
    expect("rstd", rstd, DType::f32, {rows});
    launch(stream, "rms_norm_forward", {x, w}, {y, rstd}, gpu::rms_norm_forward, y, rstd, x, w, eps);
  }
  void rms_norm_backward(Stream& stream, Tensor dx, Tensor dw, Tensor dresidual, Tensor dy, Tensor x,
                         Tensor w, Tensor rstd) override {
    expect_act("x", x);
    expect_rank("x", x, 2);
    const int64_t rows = x.dim(0), width = x.dim(1);
    expect("dx", dx, x.dtype(), {rows, width});
    if (!dw.empty()) expect("dw", dw, DType::f32, {width});
    if (!dresidual.empty()) expect("dresidual", dresidual, x.dtype(), {rows, width});
    expect("dy", dy, x.dtype(), {rows, width});
    expect("w", w, x.dtype(), {width});
    expect("rstd", rstd, DType::f32, {rows});
    launch(stream, "rms_norm_backward", {dw, dresidual, dy, x, w, rstd}, {dx, dw}, gpu::rms_norm_backward, dx,
           dw, dresidual, dy, x, w, rstd);
  }
  void layer_norm_forward(Stream& stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b,
                          float eps) override {
    expect_layer_norm(x, w, mean, rstd);
    expect("y", y, x.dtype(), {x.dim(0), x.dim(1)});
    expect("b", b, x.dtype(), {x.dim(1)});
    launch(stream, "layer_norm_forward", {x, w, b}, {y, mean, rstd}, gpu::layer_norm_forward, y, mean, rstd,
           x, w, b, eps);
  }
  void layer_norm_backward(Stream& stream, Tensor dx, Tensor dw, Tensor db, Tensor dresidual, Tensor dy,
                           Tensor x, Tensor w, Tensor mean, Tensor rstd) override {
    expect_layer_norm(x, w, mean, rstd);
    for (const auto& [name, t] : {std::pair{"dx", dx}, {"dy", dy}})
      expect(name, t, x.dtype(), {x.dim(0), x.dim(1)});
    if (!dresidual.empty()) expect("dresidual", dresidual, x.dtype(), {x.dim(0), x.dim(1)});
    for (const auto& [name, t] : {std::pair{"dw", dw}, {"db", db}})
      if (!t.empty()) expect(name, t, DType::f32, {x.dim(1)});
    launch(stream, "layer_norm_backward", {dw, db, dresidual, dy, x, w, mean, rstd}, {dx, dw, db},
           gpu::layer_norm_backward, dx, dw, db, dresidual, dy, x, w, mean, rstd);
  }

  void linear_forward(Stream& stream, Tensor y, Tensor x, Tensor w, Into into) override {
    multiply(stream, "linear_forward", Storage::nt, y, x, w, into);
  }
  void linear_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, Into into) override {
    multiply(stream, "linear_backward_input", Storage::nn, dx, dy, w, into);
  }
  void linear_backward_weight(Stream& stream, Tensor dw, Tensor dy, Tensor x) override {
    ASSERT(dw.dtype() == DType::f32, "dw is {}, not float32", name_of(dw.dtype()));
    multiply(stream, "linear_backward_weight", Storage::tn, dw, dy, x, Into::add);
  }

  void add_bias(Stream& stream, Tensor y, Tensor bias) override {
    expect_act("y", y);
    expect_rank("y", y, 2);
    expect("bias", bias, y.dtype(), {y.dim(1)});
    launch(stream, "add_bias", {y, bias}, {y}, gpu::add_bias, y, bias);
  }
  void bias_backward(Stream& stream, Tensor dbias, Tensor dy) override {
    expect_act("dy", dy);
    expect_rank("dy", dy, 2);
    expect("dbias", dbias, DType::f32, {dy.dim(1)});
    launch(stream, "bias_backward", {dbias, dy}, {dbias}, gpu::bias_backward, dbias, dy);
  }

  void rope(Stream& stream, Tensor y, Tensor x, Tensor cos, Tensor sin, int direction) override {
    expect_act("x", x);
    expect_rank("x", x, 4);
    expect_rank("cos", cos, 2);
    ASSERT(x.dim(3) % 2 == 0, "head size {} is odd", x.dim(3));
    ASSERT(cos.dim(0) >= x.dim(1), "angles for {} positions of {}", cos.dim(0), x.dim(1));
    ASSERT(direction == 1 || direction == -1, "direction {}", direction);
    expect("y", y, x.dtype(), {x.dim(0), x.dim(1), x.dim(2), x.dim(3)});
    expect("cos", cos, DType::f32, {cos.dim(0), x.dim(3) / 2});
    expect("sin", sin, DType::f32, {cos.dim(0), x.dim(3) / 2});
    launch(stream, "rope", {x, cos, sin}, {y}, gpu::rope, y, x, cos, sin, direction);
  }
  void attention_forward(Stream& stream, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                         const AttentionShape& s) override {
    expect_attention(s, q, k, v, lse);
    expect("out", out, q.dtype(), {s.batch, s.length, s.heads, s.head_dim});
    launch(stream, {"attention_forward", attention_flops(s, 2)}, {q, k, v}, {out, lse},
           gpu::attention_forward, out, lse, q, k, v, s);
  }
  void attention_backward(Stream& stream, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q, Tensor k,
                          Tensor v, Tensor out, Tensor lse, const AttentionShape& s) override {
    expect_attention(s, q, k, v, lse);
    const DType act = q.dtype();
    for (const auto& [name, t] : {std::pair{"dq", dq}, {"dout", dout}, {"out", out}})
      expect(name, t, act, {s.batch, s.length, s.heads, s.head_dim});
    for (const auto& [name, t] : {std::pair{"dk", dk}, {"dv", dv}})
      expect(name, t, act, {s.batch, s.length, s.kv_heads, s.head_dim});
    launch(stream, {"attention_backward", attention_flops(s, 5)}, {dout, q, k, v, out, lse}, {dq, dk, dv},
           gpu::attention_backward, dq, dk, dv, dout, q, k, v, out, lse, s);
  }

  void swiglu_forward(Stream& stream, Tensor y, Tensor gate, Tensor up) override {
    expect_act("y", y);
    expect_rank("y", y, 2);
    for (const auto& [name, t] : {std::pair{"gate", gate}, {"up", up}})
      expect(name, t, y.dtype(), {y.dim(0), y.dim(1)});
    launch(stream, "swiglu_forward", {gate, up}, {y}, gpu::swiglu_forward, y, gate, up);
  }
  void swiglu_backward(Stream& stream, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) override {
    expect_act("dy", dy);
    expect_rank("dy", dy, 2);
    for (const auto& [name, t] : {std::pair{"dgate", dgate}, {"dup", dup}, {"gate", gate}, {"up", up}})
      expect(name, t, dy.dtype(), {dy.dim(0), dy.dim(1)});
    launch(stream, "swiglu_backward", {dy, gate, up}, {dgate, dup}, gpu::swiglu_backward, dgate, dup, dy,
           gate, up);
  }
  void gelu_forward(Stream& stream, Tensor y, Tensor x) override {
    expect_act("x", x);
    expect_rank("x", x, 2);
    expect("y", y, x.dtype(), {x.dim(0), x.dim(1)});
    launch(stream, "gelu_forward", {x}, {y}, gpu::gelu_forward, y, x);
  }
  void gelu_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x) override {
    expect_act("x", x);
    expect_rank("x", x, 2);
    for (const auto& [name, t] : {std::pair{"dx", dx}, {"dy", dy}})
      expect(name, t, x.dtype(), {x.dim(0), x.dim(1)});
    launch(stream, "gelu_backward", {dy, x}, {dx}, gpu::gelu_backward, dx, dy, x);
  }
  void add(Stream& stream, Tensor y, Tensor a, Tensor b) override {
    expect_act("y", y);
    for (const auto& [name, t] : {std::pair{"a", a}, {"b", b}})
      ASSERT(t.dtype() == y.dtype() && t.numel() == y.numel(), "{} is {} {}, y {} {}", name, t.numel(),
             name_of(t.dtype()), y.numel(), name_of(y.dtype()));
    launch(stream, "add", {a, b}, {y}, gpu::add, y, a, b);
  }
  void cast(Stream& stream, Tensor dst, Tensor src) override {
    expect_act("dst", dst);
    expect_act("src", src);
    ASSERT(dst.numel() == src.numel(), "{} elements cast to {}", src.numel(), dst.numel());
    launch(stream, "cast", {src}, {dst}, gpu::cast, dst, src);
  }

  void softmax_cross_entropy(Stream& stream, Tensor loss, Tensor dlogits, Tensor logits, Tensor targets,
                             float scale) override {
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
    launch(stream, "softmax_cross_entropy", {loss, logits, targets}, {loss, dlogits},
           gpu::softmax_cross_entropy, loss, dlogits, logits, targets, scale);
  }

  void sum_of_squares(Stream& stream, Tensor out, Tensor x) override {
    expect_act("x", x);
    expect("out", out, DType::f64, {2});
    launch(stream, "sum_of_squares", {x}, {out}, gpu::sum_of_squares, out, x);
  }
  void adam(Stream& stream, const AdamTensors& t, Decay decay, const AdamScalars& scalars,
            AdamPublish publish) override {
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
    launch(stream, "adam", {t.master, t.moment1, t.moment2, t.grad},
           {t.master, t.moment1, t.moment2, t.weight_out}, gpu::adam, t.master, t.moment1, t.moment2,
           t.weight_out, t.grad, decay, scalars, publish);
  }
  void round_weights(Stream& stream, Tensor dst, Tensor src) override {
    expect_act("dst", dst);
    ASSERT(src.dtype() == DType::f32 && dst.numel() == src.numel(), "{} {} rounded to {}", src.numel(),
           name_of(src.dtype()), dst.numel());
    launch(stream, "round_weights", {src}, {dst}, gpu::round_weights, dst, src);
  }

 private:
  /// c = op(a) * op(b): checks that the three shapes meet.
  void multiply(Stream& stream, const char* name, Storage storage, Tensor c, Tensor a, Tensor b, Into into) {
    expect_act(name, a);
    for (const Tensor& t : {a, b, c}) expect_rank(name, t, 2);
    const bool a_turned = storage == Storage::tn, b_turned = storage == Storage::nt;
    const int64_t m = a.dim(a_turned ? 1 : 0), k = a.dim(a_turned ? 0 : 1), n = b.dim(b_turned ? 0 : 1);
    expect(name, b, a.dtype(), {b_turned ? n : k, b_turned ? k : n});
    expect(name, c, c.dtype() == DType::f32 ? DType::f32 : a.dtype(), {m, n});
    std::vector<Tensor> reads = {a, b};
    if (into == Into::add) reads.push_back(c);
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    launch(stream, {name, flops}, std::move(reads), {c}, product, storage, c, a, b, into);
  }

  static void expect_layer_norm(const Tensor& x, const Tensor& w, const Tensor& mean, const Tensor& rstd) {
    expect_act("x", x);
    expect_rank("x", x, 2);
    expect("w", w, x.dtype(), {x.dim(1)});
    expect("mean", mean, DType::f32, {x.dim(0)});
    expect("rstd", rstd, DType::f32, {x.dim(0)});
  }

  static void expect_attention(const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& lse) {
    expect_act("q", q);
    ASSERT(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "{} heads over {} kv heads", s.heads, s.kv_heads);
    ASSERT(s.window >= 0, "window {}", s.window);
    expect("q", q, q.dtype(), {s.batch, s.length, s.heads, s.head_dim});
    for (const auto& [name, t] : {std::pair{"k", k}, {"v", v}})
      expect(name, t, q.dtype(), {s.batch, s.length, s.kv_heads, s.head_dim});
    expect("lse", lse, DType::f32, {s.batch, s.heads, s.length});
  }

  /// Enqueues kernel(workers, tools, args...) with its tensors made readable.
  template <class Function, class... Args>
  void launch(Stream& stream, Label label, std::vector<Tensor> reads, std::vector<Tensor> writes,
              Function kernel, Args... args) {
    std::erase_if(reads, [](const Tensor& t) { return t.empty(); });
    std::erase_if(writes, [](const Tensor& t) { return t.empty(); });
    auto body = [&rows = rows_, scratch = scratch_, kernel, args...](KernelContext& context) {
      kernel(context.workers(), KernelTools{rows, *scratch}, opened(context, args)...);
    };
    queue_.enqueue(stream, {label.name, std::move(reads), std::move(writes), std::move(body), label.flops});
  }

  KernelQueue& queue_;
  const RowKernels& rows_;
  std::shared_ptr<Scratch> scratch_ = std::make_shared<Scratch>();  // kernels in flight hold it too
};

}  // namespace

std::unique_ptr<Ops> make_host_ops(KernelQueue& queue) {
  return make_host_ops(queue, *row_kernels().front());
}

std::unique_ptr<Ops> make_host_ops(KernelQueue& queue, const RowKernels& rows) {
  check_products();
  return std::make_unique<HostOps>(queue, rows);
}

std::unique_ptr<Ops> make_untried_ops(KernelQueue& queue) {
  return std::make_unique<HostOps>(queue, *row_kernels().front());
}

size_t host_scratch_bytes(int threads, DType act, int64_t length, int64_t head_dim) {
  const int64_t products = act == DType::f32 ? 0 : product_scratch_floats();
  const int64_t floats = std::max(products, attention_scratch_floats(length, head_dim));
  return static_cast<size_t>(threads) * static_cast<size_t>(floats) * sizeof(float);
}

}  // namespace tandem::gpu
