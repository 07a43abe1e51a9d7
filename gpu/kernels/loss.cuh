#pragma once
// Cross-entropy of fp32 logits and its gradient. One block per row: the row's maximum and the sum of exp
// above it in one sweep, the gradient in a second. Sums in fp32, by pack, by thread, by block; rows in order
// in double.
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/reduce.cuh"

namespace tandem::gpu::TANDEM_SIMT {

/// The largest element in use.
DEVICE float max_of(const Pack& pack, Part part) {
  float most = pack.x[0];
  UNROLL for (int k = 1; k < kPack; ++k) most = k < part.count && pack.x[k] > most ? pack.x[k] : most;
  return most;
}

/// losses[r] = log sum exp(logits[r, :]) - logits[r, targets[r]]; dlogits[r, :] = (softmax(logits[r, :]) -
/// onehot) * scale. Both are 0 where targets[r] < 0. dlogits may be null, or logits itself where T is float.
/// losses: [R] f64; dlogits: [R, width]; logits: [R, width] fp32; targets: [R] in [0, width) or negative.
/// Reads logits twice (the second time from L2, and only for dlogits), writes dlogits once.
template <class T>
KERNEL void softmax_cross_entropy(double* losses, T* dlogits, const float* logits, const int32_t* targets,
                                  float scale, int64_t width) {
  const float* const from = logits + block() * width;
  T* const to = dlogits == nullptr ? nullptr : dlogits + block() * width;
  const bool wide = aligned(from) && (to == nullptr || aligned(to));
  const int32_t target = read(targets + block());
  if (target < 0) {
    if (thread() == 0) write(losses + block(), 0.0);
    if (to != nullptr) for_row(width, wide, [&](int64_t i, Part part) { store(to + i, Pack{}, part); });
    return;
  }
  const float at_target = read(from + target);
  float own_max = -kInfinity, own_sum = 0;
  for_row(width, wide, [&](int64_t i, Part part) {
    const Pack x = load(from + i, part);
    const float most = max_of(x, part);
    if (most > own_max) {
      own_sum = own_sum * expf(own_max - most);
      own_max = most;
    }
    own_sum += sum_of(pack_of([&](int k) { return expf(x.x[k] - own_max); }), part);
  });
  const float most = block_max(own_max);
  // A thread without a pack has the sum 0 of a maximum that is not there.
  const float sum = block_sum(own_sum == 0 ? 0.0f : own_sum * expf(own_max - most));
  const float above = at_target - most;
  if (thread() == 0) write(losses + block(), log(static_cast<double>(sum)) - static_cast<double>(above));
  if (to == nullptr) return;
  const float factor = scale / sum, of_target = (expf(above) / sum - 1.0f) * scale;
  for_row(width, wide, [&](int64_t i, Part part) {
    const Pack x = load(from + i, part);
    store(to + i, pack_of([&](int k) { return i + k == target ? of_target : expf(x.x[k] - most) * factor; }),
          part);
  });
}

/// total[0] += losses[0] + losses[1] + ..., in this order. One block of kBlockThreads. total: [1]; losses:
/// [rows], read once.
KERNEL void add_losses(double* total, const double* losses, int64_t rows) {
  SHARED_ARRAY(double, some, kBlockThreads);
  double sum = thread() == 0 ? read(total) : 0.0;
  for (int64_t begin = 0; begin < rows; begin += threads()) {
    const int64_t left = rows - begin, count = left < threads() ? left : threads();
    if (thread() < count) some[thread()] = read(losses + begin + thread());
    block_barrier();
    if (thread() == 0)
      for (int64_t i = 0; i < count; ++i) sum += some[i];
    block_barrier();  // the next round writes `some`
  }
  if (thread() == 0) write(total, sum);
}

}  // namespace tandem::gpu::TANDEM_SIMT
