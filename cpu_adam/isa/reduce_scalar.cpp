#include "cpu_adam/isa/reduce_text.h"

namespace tandem {

namespace {

struct Scalar {
  static constexpr int64_t kLanes = 1;
  struct Squares {
    double sums[kReduceLanes] = {};
    template <class T>
    void add(const T* x) {
      for (int lane = 0; lane < kReduceLanes; ++lane) {
        const double value = static_cast<double>(to_float(x[lane]));
        sums[lane] += value * value;
      }
    }
    void store(double* lanes, const void*) const {
      for (int lane = 0; lane < kReduceLanes; ++lane) lanes[lane] = sums[lane];
    }
  };
  template <class T>
  static float load(const T* x) {
    return widened(*x);
  }
  template <class T>
  static void store_weight(T* to, float x) {
    *to = round_weight<T>(x);
  }
};

constexpr ReduceKernels kKernels = reduce_table<Scalar>();

}  // namespace

const ReduceKernels* scalar_reduce_kernels() { return &kKernels; }

}  // namespace tandem
