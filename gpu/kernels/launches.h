#pragma once
// Each op of core/device/ops.h as launches: which kernels, on which grids. Launcher is CUDA's
// (gpu/cuda/launch.cu) or the emulator's (tests/simt): launcher(name, grid, kernel, arguments...) runs the
// kernel after those before it. Shapes were checked by the caller; arrays are device memory of the type given
// beside them ("act": f32, bf16 or f16). Scratch is device memory at a multiple of 16 bytes that nobody else
// uses until the launches are done. Grids depend on shapes alone.
#include "core/base/dtype.h"
#include "gpu/kernels/adam.cuh"
#include "gpu/kernels/bias.cuh"
#include "gpu/kernels/column_sums.cuh"
#include "gpu/kernels/embedding.cuh"
#include "gpu/kernels/layer_norm.cuh"
#include "gpu/kernels/loss.cuh"
#include "gpu/kernels/norm.cuh"
#include "gpu/kernels/pointwise.cuh"
#include "gpu/kernels/rope.cuh"
#include "gpu/kernels/squares.cuh"

namespace tandem::gpu::TANDEM_SIMT {

constexpr int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// One thread for each of n items.
inline Grid grid_of(int64_t n) { return {quotient_up(n, kBlockThreads), kBlockThreads}; }
/// One thread for each pack of n elements.
inline Grid grid_of_packs(int64_t n) { return grid_of(quotient_up(n, kPack)); }
/// One block for each row; no more warps than its packs need.
inline Grid grid_of_rows(int64_t rows, int64_t width) {
  const int64_t warps = quotient_up(quotient_up(width, kPack), kWarp);
  return {rows, static_cast<int>(warps * kWarp < kBlockThreads ? warps * kWarp : kBlockThreads)};
}

/// body(T{}) with T = float, bf16 or f16.
template <class Body>
void with_type(DType type, const Body& body) {
  if (type == DType::f32) body(float{});
  if (type == DType::bf16) body(bf16{});
  if (type == DType::f16) body(f16{});
}

template <class T>
T* as(void* p) {
  return static_cast<T*>(p);
}
template <class T>
const T* as(const void* p) {
  return static_cast<const T*>(p);
}

// ---- look-up

template <class Launcher>
void launch_embedding_forward(Launcher& launcher, void* y, const void* table, const int32_t* tokens,
                              DType act, int64_t count, int64_t width) {
  if (count * width == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("embedding_forward", grid_of_rows(count, width), embedding_forward<T>, as<T>(y), as<T>(table),
             tokens, width);
  });
}

template <class Launcher>
void launch_embedding_backward(Launcher& launcher, float* dtable, const void* dy, const int32_t* tokens,
                               DType act, int64_t count, int64_t width) {
  if (count * width == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("embedding_backward", Grid{count, kBlockThreads}, embedding_backward<T>, dtable, as<T>(dy),
             tokens, count, width);
  });
}

// ---- sums over rows

inline int64_t column_chunks(int64_t rows) { return quotient_up(rows, kTileRows); }
inline int64_t column_sums_scratch(int64_t rows, int64_t width) {
  return column_chunks(rows) * width * static_cast<int64_t>(sizeof(float));
}

/// out[c] += sum over rows of term(row, c).
template <class Launcher, class Term>
void add_column_sums(Launcher& launcher, float* out, const Term& term, int64_t rows, int64_t width,
                     void* scratch) {
  if (rows * width == 0) return;
  const int64_t chunks = column_chunks(rows);
  launcher("column_sums", Grid{chunks * quotient_up(width, kTileColumns), kBlockThreads}, column_sums<Term>,
           as<float>(scratch), term, rows, width);
  launcher("add_chunks", grid_of(width), add_chunks, out, as<float>(scratch), chunks, width);
}

template <class Launcher>
void launch_add_bias(Launcher& launcher, void* y, const void* bias, DType act, int64_t rows, int64_t width) {
  if (rows * width == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("add_bias", grid_of(rows * quotient_up(width, kPack)), add_bias<T>, as<T>(y), as<T>(bias), rows,
             width);
  });
}

/// scratch: column_sums_scratch bytes.
template <class Launcher>
void launch_bias_backward(Launcher& launcher, float* dbias, const void* dy, DType act, int64_t rows,
                          int64_t width, void* scratch) {
  with_type(act, [&](auto t) {
    using T = decltype(t);
    add_column_sums(launcher, dbias, BiasTerm<T>{as<T>(dy), width}, rows, width, scratch);
  });
}

// ---- norms

template <class Launcher>
void launch_rms_norm_forward(Launcher& launcher, void* y, float* rstd, const void* x, const void* w,
                             DType act, int64_t rows, int64_t width, float eps) {
  if (rows * width == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("rms_norm_forward", grid_of_rows(rows, width), rms_norm_forward<T>, as<T>(y), rstd, as<T>(x),
             as<T>(w), width, eps);
  });
}

/// dw, dresidual: null where there is none. scratch: column_sums_scratch bytes if there is a dw.
template <class Launcher>
void launch_rms_norm_backward(Launcher& launcher, void* dx, float* dw, const void* dresidual, const void* dy,
                              const void* x, const void* w, const float* rstd, DType act, int64_t rows,
                              int64_t width, void* scratch) {
  if (rows * width == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    if (dw != nullptr)
      add_column_sums(launcher, dw, RmsNormWeightTerm<T>{as<T>(dy), as<T>(x), rstd, width}, rows, width,
                      scratch);
    launcher("rms_norm_backward", grid_of_rows(rows, width), rms_norm_backward<T>, as<T>(dx),
             as<T>(dresidual), as<T>(dy), as<T>(x), as<T>(w), rstd, width);
  });
}

template <class Launcher>
void launch_layer_norm_forward(Launcher& launcher, void* y, float* mean, float* rstd, const void* x,
                               const void* w, const void* b, DType act, int64_t rows, int64_t width,
                               float eps) {
  if (rows * width == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("layer_norm_forward", grid_of_rows(rows, width), layer_norm_forward<T>, as<T>(y), mean, rstd,
             as<T>(x), as<T>(w), as<T>(b), width, eps);
  });
}

/// dw, db, dresidual: null where there is none. scratch: column_sums_scratch bytes if there is a dw or a db.
template <class Launcher>
void launch_layer_norm_backward(Launcher& launcher, void* dx, float* dw, float* db, const void* dresidual,
                                const void* dy, const void* x, const void* w, const float* mean,
                                const float* rstd, DType act, int64_t rows, int64_t width, void* scratch) {
  if (rows * width == 0) return;
  if (db != nullptr) launch_bias_backward(launcher, db, dy, act, rows, width, scratch);
  with_type(act, [&](auto t) {
    using T = decltype(t);
    if (dw != nullptr)
      add_column_sums(launcher, dw, LayerNormWeightTerm<T>{as<T>(dy), as<T>(x), mean, rstd, width}, rows,
                      width, scratch);
    launcher("layer_norm_backward", grid_of_rows(rows, width), layer_norm_backward<T>, as<T>(dx),
             as<T>(dresidual), as<T>(dy), as<T>(x), as<T>(w), mean, rstd, width);
  });
}

// ---- rotary

template <class Launcher>
void launch_rope(Launcher& launcher, void* y, const void* x, const float* cos, const float* sin, DType act,
                 int direction, int64_t batch, int64_t length, int64_t heads, int64_t head_dim) {
  const int64_t half = head_dim / 2, positions = batch * length;
  if (positions * heads * half == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("rope", grid_of(positions * heads * quotient_up(half, kPack)), rope<T>, as<T>(y), as<T>(x), cos,
             sin, static_cast<float>(direction), positions, length, heads, half);
  });
}

// ---- pointwise

template <class Launcher>
void launch_swiglu_forward(Launcher& launcher, void* y, const void* gate, const void* up, DType act,
                           int64_t n) {
  if (n == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("swiglu_forward", grid_of_packs(n), swiglu_forward<T>, as<T>(y), as<T>(gate), as<T>(up), n);
  });
}

template <class Launcher>
void launch_swiglu_backward(Launcher& launcher, void* dgate, void* dup, const void* dy, const void* gate,
                            const void* up, DType act, int64_t n) {
  if (n == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("swiglu_backward", grid_of_packs(n), swiglu_backward<T>, as<T>(dgate), as<T>(dup), as<T>(dy),
             as<T>(gate), as<T>(up), n);
  });
}

template <class Launcher>
void launch_gelu_forward(Launcher& launcher, void* y, const void* x, DType act, int64_t n) {
  if (n == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("gelu_forward", grid_of_packs(n), gelu_forward<T>, as<T>(y), as<T>(x), n);
  });
}

template <class Launcher>
void launch_gelu_backward(Launcher& launcher, void* dx, const void* dy, const void* x, DType act, int64_t n) {
  if (n == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("gelu_backward", grid_of_packs(n), gelu_backward<T>, as<T>(dx), as<T>(dy), as<T>(x), n);
  });
}

template <class Launcher>
void launch_add(Launcher& launcher, void* y, const void* a, const void* b, DType act, int64_t n) {
  if (n == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("add", grid_of_packs(n), add<T>, as<T>(y), as<T>(a), as<T>(b), n);
  });
}

template <class Launcher>
void launch_cast(Launcher& launcher, void* dst, DType dst_type, const void* src, DType src_type, int64_t n) {
  if (n == 0) return;
  with_type(dst_type, [&](auto to) {
    with_type(src_type, [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      launcher("cast", grid_of_packs(n), cast<To, From>, as<To>(dst), as<From>(src), n);
    });
  });
}

template <class Launcher>
void launch_round_weights(Launcher& launcher, void* dst, DType dst_type, const float* src, int64_t n) {
  if (n == 0) return;
  with_type(dst_type, [&](auto to) {
    using To = decltype(to);
    launcher("round_weights", grid_of_packs(n), round_weights<To>, as<To>(dst), src, n);
  });
}

// ---- loss

inline int64_t cross_entropy_scratch(int64_t rows) { return rows * static_cast<int64_t>(sizeof(double)); }

/// loss: [1] f64, added to. dlogits: null where it is not wanted. scratch: cross_entropy_scratch bytes.
template <class Launcher>
void launch_softmax_cross_entropy(Launcher& launcher, double* loss, void* dlogits, DType act,
                                  const float* logits, const int32_t* targets, float scale, int64_t rows,
                                  int64_t width, void* scratch) {
  if (rows * width == 0) return;
  with_type(act, [&](auto t) {
    using T = decltype(t);
    launcher("softmax_cross_entropy", grid_of_rows(rows, width), softmax_cross_entropy<T>,
             as<double>(scratch), as<T>(dlogits), logits, targets, scale, width);
  });
  launcher("add_losses", Grid{1, kBlockThreads}, add_losses, loss, as<double>(scratch), rows);
}

// ---- gradients and optimizer

/// Bytes of the tree below its root: a pair of doubles for each leaf and each block of reduce_nodes.
inline int64_t sum_of_squares_scratch(int64_t n) {
  int64_t pairs = 0;
  for (int64_t level = quotient_up(n, kReduceLeaf); level > 1; level = quotient_up(level, kTreeNodes))
    pairs += level;
  return (pairs > 0 ? pairs : 1) * 2 * static_cast<int64_t>(sizeof(double));
}

/// out = the tree over `count` nodes, which the levels above follow in scratch. out: [2] f64.
template <class Launcher>
void launch_reduce_nodes(Launcher& launcher, double* out, double* nodes, int64_t count) {
  for (bool root = false; !root;) {
    const int64_t above = quotient_up(count, kTreeNodes);
    root = above <= 1;
    double* const up = root ? out : nodes + 2 * count;
    launcher("reduce_nodes", Grid{root ? 1 : above, kBlockThreads}, reduce_nodes, up, nodes, count);
    nodes = up;
    count = above;
  }
}

/// out: [2] f64. scratch: sum_of_squares_scratch bytes.
template <class Launcher>
void launch_sum_of_squares(Launcher& launcher, double* out, const void* x, DType type, int64_t n,
                           void* scratch) {
  double* const nodes = as<double>(scratch);
  const int64_t leaves = quotient_up(n, kReduceLeaf);
  with_type(type, [&](auto t) {
    using T = decltype(t);
    if (leaves > 0)
      launcher("leaf_squares", Grid{quotient_up(leaves, kBlockLeaves), kBlockThreads}, leaf_squares<T>, nodes,
               as<T>(x), n);
  });
  launch_reduce_nodes(launcher, out, nodes, leaves);
}

template <Decay decay, class Launcher>
void launch_adam_of(Launcher& launcher, void* weight_out, DType weight_type, const void* grad,
                    DType grad_type, const AdamPass& pass) {
  with_type(weight_type, [&](auto w) {
    with_type(grad_type, [&](auto g) {
      using W = decltype(w);
      using G = decltype(g);
      launcher("adam", grid_of_packs(pass.n), adam<decay, W, G>, as<W>(weight_out), as<G>(grad), pass);
    });
  });
}

template <class Launcher>
void launch_adam(Launcher& launcher, void* weight_out, DType weight_type, const void* grad, DType grad_type,
                 Decay decay, const AdamPass& pass) {
  if (pass.n == 0) return;
  const auto launch = [&](auto launch_of) {
    launch_of(launcher, weight_out, weight_type, grad, grad_type, pass);
  };
  if (decay == Decay::none) launch(launch_adam_of<Decay::none, Launcher>);
  if (decay == Decay::l2) launch(launch_adam_of<Decay::l2, Launcher>);
  if (decay == Decay::decoupled) launch(launch_adam_of<Decay::decoupled, Launcher>);
}

}  // namespace tandem::gpu::TANDEM_SIMT
