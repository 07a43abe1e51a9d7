#include "cpu_adam/isa/adam_text.h"

namespace tandem {

namespace {

struct Scalar {
  using Value = float;
  static constexpr int64_t kLanes = 1;
  template <class T>
  static float load(const T* x) {
    return to_float(*x);
  }
  static void store(float* to, float x) { *to = x; }
  template <class T>
  static void store_weight(T* to, float x) {
    *to = round_weight<T>(x);
  }
};

constexpr AdamKernels kKernels = adam_table<Scalar>();

}  // namespace

const AdamKernels* scalar_kernels() { return &kKernels; }

}  // namespace tandem
