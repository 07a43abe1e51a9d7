#pragma once
// Weights and tokens of the goldens as formulas, so that only results are stored. tests/golden/formula.py
// says the same in Python; ParityGolden.FormulasAreThoseOfTheScript compares the two bit for bit.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::golden {

constexpr uint64_t kTokens = 250;  ///< ids below this; the models' vocab is padded to 256

/// splitmix64's finaliser.
constexpr uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

/// Element i of a stream, given fnv1a of its name: fp32 in (-1, 1), (2k + 1 - 2^24) / 2^24 with k the hash's
/// upper 24 bits; exact.
constexpr float uniform(uint64_t stream, uint64_t i) {
  const auto k = static_cast<int32_t>(mix(stream + i) >> 40);
  return static_cast<float>(2 * k + 1 - (1 << 24)) * 0x1p-24f;
}

/// Fills a parameter of the given rank, row-major: matrices and biases 0.25 u, norms 1 + 0.1 u.
inline void fill_weight(std::string_view name, int rank, std::span<float> out) {
  const uint64_t stream = fnv1a(name);
  const bool centred = rank >= 2 || name.ends_with(".bias");
  for (uint64_t i = 0; i < out.size(); ++i)
    out[i] = centred ? 0.25f * uniform(stream, i) : 1.0f + 0.1f * uniform(stream, i);
}

/// Batch k of a run: windows of length + 1 tokens, [batch_size, length + 1] flat. Inputs are the first length
/// tokens of a window, targets the last length.
inline std::vector<int32_t> batch(int step, int64_t batch_size, int64_t length) {
  std::vector<int32_t> windows(static_cast<size_t>(batch_size * (length + 1)));
  const uint64_t stream = fnv1a("batch." + std::to_string(step));
  for (uint64_t i = 0; i < windows.size(); ++i) {
    const uint64_t r = mix(stream + i) >> 33;
    windows[i] = static_cast<int32_t>((r % kTokens) * (r / kTokens % kTokens) / kTokens);
  }
  return windows;
}

}  // namespace tandem::golden
