#include "tests/simt/emulated_ops.h"

#include "gpu/kernels/launches.h"

namespace tandem::simt {

namespace {

namespace kernels = gpu::TANDEM_SIMT;

using Named = std::pair<const char*, Tensor>;

struct EmulatedLaunches {
  EmulatorSettings settings;
  Emulator emulator;
};

/// Runs launches with the memory of one op.
class OpLauncher {
 public:
  OpLauncher(EmulatedLaunches& launches, std::vector<Named> writes, std::vector<Named> reads,
             int64_t scratch_bytes = 0)
      : launches_(launches), scratch_(static_cast<size_t>(scratch_bytes), 0xFF) {
    for (const auto& [name, t] : writes) add(name, t, true);
    for (const auto& [name, t] : reads) add(name, t, false);
    memory_.push_back({"scratch", scratch_.data(), scratch_.size(), true});
  }
  [[nodiscard]] void* scratch() { return scratch_.data(); }

  template <class... Parameters, class... Arguments>
  void operator()(const char* name, gpu::Grid grid, void (*kernel)(Parameters...), Arguments... arguments) {
    const EmulatorSettings& settings = launches_.settings;
    launches_.emulator.run({name, grid, memory_, settings.seed, settings.mutant, settings.sites},
                           [&] { kernel(arguments...); });
  }

 private:
  void add(const char* name, const Tensor& t, bool writable) {
    if (!t.empty()) memory_.push_back({name, t.raw(), t.bytes(), writable});
  }
  EmulatedLaunches& launches_;
  std::vector<unsigned char> scratch_;
  std::vector<GlobalMemory> memory_;
};

class EmulatedOps : public Ops {
 public:
  explicit EmulatedOps(const EmulatorSettings& settings) { launches_.settings = settings; }

  void embedding_forward(Stream&, Tensor y, Tensor table, Tensor tokens) override {
    OpLauncher on(launches_, {{"y", y}}, {{"table", table}, {"tokens", tokens}});
    kernels::launch_embedding_forward(on, y.raw(), table.raw(), tokens.data<int32_t>(), y.dtype(), y.dim(0),
                                      y.dim(1));
  }
  void embedding_backward(Stream&, Tensor dtable, Tensor dy, Tensor tokens) override {
    OpLauncher on(launches_, {{"dtable", dtable}}, {{"dy", dy}, {"tokens", tokens}});
    kernels::launch_embedding_backward(on, dtable.data<float>(), dy.raw(), tokens.data<int32_t>(), dy.dtype(),
                                       dy.dim(0), dy.dim(1));
  }

  void rms_norm_forward(Stream&, Tensor y, Tensor rstd, Tensor x, Tensor w, float eps) override {
    OpLauncher on(launches_, {{"y", y}, {"rstd", rstd}}, {{"x", x}, {"w", w}});
    kernels::launch_rms_norm_forward(on, y.raw(), rstd.data<float>(), x.raw(), w.raw(), x.dtype(), x.dim(0),
                                     x.dim(1), eps);
  }
  void rms_norm_backward(Stream&, Tensor dx, Tensor dw, Tensor dresidual, Tensor dy, Tensor x, Tensor w,
                         Tensor rstd) override {
    OpLauncher on(launches_, {{"dx", dx}, {"dw", dw}},
                  {{"dresidual", dresidual}, {"dy", dy}, {"x", x}, {"w", w}, {"rstd", rstd}},
                  sums_scratch(x, dw));
    kernels::launch_rms_norm_backward(on, dx.raw(), floats(dw), dresidual.raw(), dy.raw(), x.raw(), w.raw(),
                                      rstd.data<float>(), x.dtype(), x.dim(0), x.dim(1), on.scratch());
  }
  void layer_norm_forward(Stream&, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b,
                          float eps) override {
    OpLauncher on(launches_, {{"y", y}, {"mean", mean}, {"rstd", rstd}}, {{"x", x}, {"w", w}, {"b", b}});
    kernels::launch_layer_norm_forward(on, y.raw(), mean.data<float>(), rstd.data<float>(), x.raw(), w.raw(),
                                       b.raw(), x.dtype(), x.dim(0), x.dim(1), eps);
  }
  void layer_norm_backward(Stream&, Tensor dx, Tensor dw, Tensor db, Tensor dresidual, Tensor dy, Tensor x,
                           Tensor w, Tensor mean, Tensor rstd) override {
    OpLauncher on(launches_, {{"dx", dx}, {"dw", dw}, {"db", db}},
                  {{"dresidual", dresidual}, {"dy", dy}, {"x", x}, {"w", w}, {"mean", mean}, {"rstd", rstd}},
                  sums_scratch(x, dw.empty() ? db : dw));
    kernels::launch_layer_norm_backward(on, dx.raw(), floats(dw), floats(db), dresidual.raw(), dy.raw(),
                                        x.raw(), w.raw(), mean.data<float>(), rstd.data<float>(), x.dtype(),
                                        x.dim(0), x.dim(1), on.scratch());
  }

  void linear_forward(Stream&, Tensor, Tensor, Tensor, Into) override { absent(); }
  void linear_backward_input(Stream&, Tensor, Tensor, Tensor, Into) override { absent(); }
  void linear_backward_weight(Stream&, Tensor, Tensor, Tensor) override { absent(); }
  void add_bias(Stream&, Tensor y, Tensor bias) override {
    OpLauncher on(launches_, {{"y", y}}, {{"bias", bias}});
    kernels::launch_add_bias(on, y.raw(), bias.raw(), y.dtype(), y.dim(0), y.dim(1));
  }
  void bias_backward(Stream&, Tensor dbias, Tensor dy) override {
    OpLauncher on(launches_, {{"dbias", dbias}}, {{"dy", dy}}, sums_scratch(dy, dbias));
    kernels::launch_bias_backward(on, dbias.data<float>(), dy.raw(), dy.dtype(), dy.dim(0), dy.dim(1),
                                  on.scratch());
  }

  void rope(Stream&, Tensor y, Tensor x, Tensor cos, Tensor sin, int direction) override {
    OpLauncher on(launches_, {{"y", y}}, {{"x", x}, {"cos", cos}, {"sin", sin}});
    kernels::launch_rope(on, y.raw(), x.raw(), cos.data<float>(), sin.data<float>(), x.dtype(), direction,
                         x.dim(0), x.dim(1), x.dim(2), x.dim(3));
  }
  void attention_forward(Stream&, Tensor, Tensor, Tensor, Tensor, Tensor, const AttentionShape&) override {
    absent();
  }
  void attention_backward(Stream&, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                          const AttentionShape&) override {
    absent();
  }

  void swiglu_forward(Stream&, Tensor y, Tensor gate, Tensor up) override {
    OpLauncher on(launches_, {{"y", y}}, {{"gate", gate}, {"up", up}});
    kernels::launch_swiglu_forward(on, y.raw(), gate.raw(), up.raw(), y.dtype(), y.numel());
  }
  void swiglu_backward(Stream&, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) override {
    OpLauncher on(launches_, {{"dgate", dgate}, {"dup", dup}}, {{"dy", dy}, {"gate", gate}, {"up", up}});
    kernels::launch_swiglu_backward(on, dgate.raw(), dup.raw(), dy.raw(), gate.raw(), up.raw(), dy.dtype(),
                                    dy.numel());
  }
  void gelu_forward(Stream&, Tensor y, Tensor x) override {
    OpLauncher on(launches_, {{"y", y}}, {{"x", x}});
    kernels::launch_gelu_forward(on, y.raw(), x.raw(), x.dtype(), x.numel());
  }
  void gelu_backward(Stream&, Tensor dx, Tensor dy, Tensor x) override {
    OpLauncher on(launches_, {{"dx", dx}}, {{"dy", dy}, {"x", x}});
    kernels::launch_gelu_backward(on, dx.raw(), dy.raw(), x.raw(), x.dtype(), x.numel());
  }
  void add(Stream&, Tensor y, Tensor a, Tensor b) override {
    OpLauncher on(launches_, {{"y", y}}, {{"a", a}, {"b", b}});
    kernels::launch_add(on, y.raw(), a.raw(), b.raw(), y.dtype(), y.numel());
  }
  void cast(Stream&, Tensor dst, Tensor src) override {
    OpLauncher on(launches_, {{"dst", dst}}, {{"src", src}});
    kernels::launch_cast(on, dst.raw(), dst.dtype(), src.raw(), src.dtype(), dst.numel());
  }

  void softmax_cross_entropy(Stream&, Tensor loss, Tensor dlogits, Tensor logits, Tensor targets,
                             float scale) override {
    OpLauncher on(launches_, {{"loss", loss}, {"dlogits", dlogits}},
                  {{"logits", logits}, {"targets", targets}}, kernels::cross_entropy_scratch(logits.dim(0)));
    kernels::launch_softmax_cross_entropy(
        on, loss.data<double>(), dlogits.raw(), dlogits.empty() ? DType::f32 : dlogits.dtype(),
        logits.data<float>(), targets.data<int32_t>(), scale, logits.dim(0), logits.dim(1), on.scratch());
  }

  void sum_of_squares(Stream&, Tensor out, Tensor x) override {
    OpLauncher on(launches_, {{"out", out}}, {{"x", x}}, kernels::sum_of_squares_scratch(x.numel()));
    kernels::launch_sum_of_squares(on, out.data<double>(), x.raw(), x.dtype(), x.numel(), on.scratch());
  }
  void adam(Stream&, const AdamTensors& t, Decay decay, const AdamScalars& scalars,
            AdamPublish publish) override {
    OpLauncher on(
        launches_,
        {{"master", t.master}, {"moment1", t.moment1}, {"moment2", t.moment2}, {"weight_out", t.weight_out}},
        {{"grad", t.grad}});
    kernels::launch_adam(on, t.weight_out.raw(), t.weight_out.dtype(), t.grad.raw(), t.grad.dtype(), decay,
                         {t.master.data<float>(), t.moment1.data<float>(), t.moment2.data<float>(),
                          t.master.numel(), scalars, publish.prediction});
  }
  void round_weights(Stream&, Tensor dst, Tensor src) override {
    OpLauncher on(launches_, {{"dst", dst}}, {{"src", src}});
    kernels::launch_round_weights(on, dst.raw(), dst.dtype(), src.data<float>(), dst.numel());
  }

 private:
  static void absent() { ASSERT(false, "an op of kOpsWithoutKernels"); }
  static float* floats(const Tensor& t) { return t.empty() ? nullptr : t.data<float>(); }
  static int64_t sums_scratch(const Tensor& x, const Tensor& sums) {
    return sums.empty() ? 0 : kernels::column_sums_scratch(x.dim(0), x.dim(1));
  }
  EmulatedLaunches launches_;
};

}  // namespace

namespace TANDEM_SIMT {
std::unique_ptr<Ops> make_ops(const EmulatorSettings& settings) {
  return std::make_unique<EmulatedOps>(settings);
}
}  // namespace TANDEM_SIMT

}  // namespace tandem::simt
