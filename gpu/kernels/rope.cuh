#pragma once
#include "gpu/kernels/pack.cuh"

namespace tandem::gpu::TANDEM_SIMT {

/// Of every head, pairs (j, j + half) turned by the angle of position t: y1 = x1*cos - x2*s, y2 = x2*cos +
/// x1*s with s = sign * sin. A thread turns eight pairs: packs innermost, then heads, then positions. y, x:
/// [B, T, heads, 2 * half], y may be x; cos, sin: [>= T, half] fp32; positions = B*T. Reads x and writes y
/// once; the angles come from L2 for all heads but the first.
template <class T>
KERNEL void rope(T* y, const T* x, const float* cos, const float* sin, float sign, int64_t positions,
                 int64_t length, int64_t heads, int64_t half) {
  const int64_t packs = (half + kPack - 1) / kPack, item = block() * threads() + thread();
  if (item >= positions * heads * packs) return;
  const int64_t head = item / packs, j = item % packs * kPack, left = half - j;
  const int64_t angle = head / heads % length * half + j, first = head * 2 * half + j, second = first + half;
  const bool wide = left >= kPack && aligned(y + first, y + second, x + first, x + second) &&
                    aligned(cos + angle, sin + angle);
  const Part part{left < kPack ? static_cast<int>(left) : kPack, wide};
  const Pack x1 = load(x + first, part), x2 = load(x + second, part);
  const Pack c = load(cos + angle, part), t = load(sin + angle, part);
  const Pack s = pack_of([&](int k) { return t.x[k] * sign; });
  store(y + first, pack_of([&](int k) { return x1.x[k] * c.x[k] - x2.x[k] * s.x[k]; }), part);
  store(y + second, pack_of([&](int k) { return x2.x[k] * c.x[k] + x1.x[k] * s.x[k]; }), part);
}

}  // namespace tandem::gpu::TANDEM_SIMT
