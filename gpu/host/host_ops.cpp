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
#include "gpu/ops_checks.h"

namespace tandem::gpu {

namespace {

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
    checks::embedding_forward(y, table, tokens);
    launch(stream, "embedding_forward", {table, tokens}, {y}, gpu::embedding_forward, y, table, tokens);
  }
  void embedding_backward(Stream& stream, Tensor dtable, Tensor dy, Tensor tokens) override {
    checks::embedding_backward(dtable, dy, tokens);
    launch(stream, "embedding_backward", {dtable, dy, tokens}, {dtable}, gpu::embedding_backward, dtable, dy,
           tokens);
  }

  void rms_norm_forward(Stream& stream, Tensor y, Tensor rstd, Tensor x, Tensor w, float eps) override {
    checks::rms_norm_forward(y, rstd, x, w);
    launch(stream, "rms_norm_forward", {x, w}, {y, rstd}, gpu::rms_norm_forward, y, rstd, x, w, eps);
  }
  void rms_norm_backward(Stream& stream, Tensor dx, Tensor dw, Tensor dresidual, Tensor dy, Tensor x,
                         Tensor w, Tensor rstd) override {
    checks::rms_norm_backward(dx, dw, dresidual, dy, x, w, rstd);
    launch(stream, "rms_norm_backward", {dw, dresidual, dy, x, w, rstd}, {dx, dw}, gpu::rms_norm_backward, dx,
           dw, dresidual, dy, x, w, rstd);
  }
  void layer_norm_forward(Stream& stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b,
                          float eps) override {
    checks::layer_norm_forward(y, mean, rstd, x, w, b);
    launch(stream, "layer_norm_forward", {x, w, b}, {y, mean, rstd}, gpu::layer_norm_forward, y, mean, rstd,
           x, w, b, eps);
  }
  void layer_norm_backward(Stream& stream, Tensor dx, Tensor dw, Tensor db, Tensor dresidual, Tensor dy,
                           Tensor x, Tensor w, Tensor mean, Tensor rstd) override {
    checks::layer_norm_backward(dx, dw, db, dresidual, dy, x, w, mean, rstd);
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
    checks::weight_gradient(dw);
    multiply(stream, "linear_backward_weight", Storage::tn, dw, dy, x, Into::add);
  }

  void add_bias(Stream& stream, Tensor y, Tensor bias) override {
    checks::add_bias(y, bias);
    launch(stream, "add_bias", {y, bias}, {y}, gpu::add_bias, y, bias);
  }
  void bias_backward(Stream& stream, Tensor dbias, Tensor dy) override {
    checks::bias_backward(dbias, dy);
    launch(stream, "bias_backward", {dbias, dy}, {dbias}, gpu::bias_backward, dbias, dy);
  }

  void rope(Stream& stream, Tensor y, Tensor x, Tensor cos, Tensor sin, int direction) override {
    checks::rope(y, x, cos, sin, direction);
    launch(stream, "rope", {x, cos, sin}, {y}, gpu::rope, y, x, cos, sin, direction);
  }
  void attention_forward(Stream& stream, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                         const AttentionShape& s) override {
    checks::attention_forward(out, lse, q, k, v, s);
    launch(stream, {"attention_forward", attention_flops(s, 2)}, {q, k, v}, {out, lse},
           gpu::attention_forward, out, lse, q, k, v, s);
  }
  void attention_backward(Stream& stream, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q, Tensor k,
                          Tensor v, Tensor out, Tensor lse, const AttentionShape& s) override {
    checks::attention_backward(dq, dk, dv, dout, q, k, v, out, lse, s);
    launch(stream, {"attention_backward", attention_flops(s, 5)}, {dout, q, k, v, out, lse}, {dq, dk, dv},
           gpu::attention_backward, dq, dk, dv, dout, q, k, v, out, lse, s);
  }

  void swiglu_forward(Stream& stream, Tensor y, Tensor gate, Tensor up) override {
    checks::swiglu_forward(y, gate, up);
    launch(stream, "swiglu_forward", {gate, up}, {y}, gpu::swiglu_forward, y, gate, up);
  }
  void swiglu_backward(Stream& stream, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) override {
    checks::swiglu_backward(dgate, dup, dy, gate, up);
    launch(stream, "swiglu_backward", {dy, gate, up}, {dgate, dup}, gpu::swiglu_backward, dgate, dup, dy,
           gate, up);
  }
  void gelu_forward(Stream& stream, Tensor y, Tensor x) override {
    checks::gelu_forward(y, x);
    launch(stream, "gelu_forward", {x}, {y}, gpu::gelu_forward, y, x);
  }
  void gelu_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x) override {
    checks::gelu_backward(dx, dy, x);
    launch(stream, "gelu_backward", {dy, x}, {dx}, gpu::gelu_backward, dx, dy, x);
  }
  void add(Stream& stream, Tensor y, Tensor a, Tensor b) override {
    checks::add(y, a, b);
    launch(stream, "add", {a, b}, {y}, gpu::add, y, a, b);
  }
  void cast(Stream& stream, Tensor dst, Tensor src) override {
    checks::cast(dst, src);
    launch(stream, "cast", {src}, {dst}, gpu::cast, dst, src);
  }

  void softmax_cross_entropy(Stream& stream, Tensor loss, Tensor dlogits, Tensor logits, Tensor targets,
                             float scale) override {
    checks::softmax_cross_entropy(loss, dlogits, logits, targets);
    launch(stream, "softmax_cross_entropy", {loss, logits, targets}, {loss, dlogits},
           gpu::softmax_cross_entropy, loss, dlogits, logits, targets, scale);
  }

  void sum_of_squares(Stream& stream, Tensor out, Tensor x) override {
    checks::sum_of_squares(out, x);
    launch(stream, "sum_of_squares", {x}, {out}, gpu::sum_of_squares, out, x);
  }
  void adam(Stream& stream, const AdamTensors& t, Decay decay, const AdamScalars& scalars,
            AdamPublish publish) override {
    checks::adam(t);
    launch(stream, "adam", {t.master, t.moment1, t.moment2, t.grad},
           {t.master, t.moment1, t.moment2, t.weight_out}, gpu::adam, t.master, t.moment1, t.moment2,
           t.weight_out, t.grad, decay, scalars, publish);
  }
  void round_weights(Stream& stream, Tensor dst, Tensor src) override {
    checks::round_weights(dst, src);
    launch(stream, "round_weights", {src}, {dst}, gpu::round_weights, dst, src);
  }

 private:
  void multiply(Stream& stream, const char* name, Storage storage, Tensor c, Tensor a, Tensor b, Into into) {
    const ProductShape shape = checks::product(name, storage, c, a, b);
    std::vector<Tensor> reads = {a, b};
    if (into == Into::add) reads.push_back(c);
    launch(stream, {name, shape.flops()}, std::move(reads), {c}, product, storage, c, a, b, into);
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
