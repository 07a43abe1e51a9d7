#pragma once
// Which algorithm of cuBLASLt computes which product: a table, and its file algorithms.json. Knows neither
// the card nor the library.
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/base/dtype.h"
#include "gpu/ops_checks.h"

namespace tandem::gpu::cuda {

/// What an algorithm is chosen by, and nothing else: not memory, plan or timing.
struct ProductKey {
  Storage storage = Storage::nn;
  int64_t m = 0, n = 0, k = 0;  ///< c: [m, n], row-major
  DType act = DType::f32;       ///< of a and b
  DType out = DType::f32;       ///< of c
  bool adds = false;            ///< to what c holds
  int capability = 0;           ///< of the card: 90 is 9.0
  friend auto operator<=>(const ProductKey&, const ProductKey&) = default;
};

/// The attributes of one algorithm as cuBLASLt numbers them (CUBLASLT_ALGO_CONFIG_*).
struct Algorithm {
  int32_t id = 0;
  uint32_t tile = 0, stages = 0;
  int32_t split_k = 1;
  uint32_t reduction = 0, swizzle = 0, custom = 0;
  uint16_t inner_shape = 0, cluster_shape = 0;
  friend bool operator==(const Algorithm&, const Algorithm&) = default;
};

/// An algorithm and where it was read: "FILE:LINE:COL (path)"; empty if it was not read.
struct AlgorithmEntry {
  Algorithm algorithm;
  std::string where = {};
};

/// "linear_forward", "linear_backward_input" or "linear_backward_weight".
const char* verb_of(Storage storage);

using AlgorithmTable = std::map<ProductKey, AlgorithmEntry>;

/// Sorted by key: equal tables are equal bytes. Error(failed) where the file can't be written.
void write_algorithms(const std::string& path, const AlgorithmTable& table);
/// Error(failed) with file, line and column: no such file, no JSON, another format or version, a key that is
/// unknown or missing, a number out of range, a product that comes twice.
AlgorithmTable read_algorithms(const std::string& path);

}  // namespace tandem::gpu::cuda
