#include "cpu_adam/isa/adam_text.h"

namespace tandem {

namespace {

struct Scalar {
  using Value = float;
  using Word = uint32_t;
  using Counters = uint32_t;
  static constexpr int64_t kLanes = 1;
  static uint32_t largest(uint32_t a) { return a; }
  static uint32_t joined(uint32_t a) { return a; }
  static uint32_t lane_numbers() { return 0; }
  template <class T>
  static float load(const T* x) {
    return to_float(*x);
  }
  static uint32_t load_words(const uint16_t* x) { return *x; }
  static uint32_t load_words(const uint8_t* x) { return *x; }
  static uint32_t load_words(const int8_t* x) { return static_cast<uint32_t>(*x); }
  template <class T>
  static void store_words(T* to, uint32_t x) {
    *to = static_cast<T>(x);
  }
  static void store(float* to, float x) { *to = x; }
  template <class T>
  static void store_weight(T* to, float x) {
    *to = round_weight<T>(x);
  }
  template <class T>
  static void stream_weight(T* to, Value x) {
    store_weight(to, x);
  }
  static void stream_words(uint16_t* to, Word x) { store_words(to, x); }
  static void fence() {}
};

constexpr AdamKernels kKernels = adam_table<Scalar>();

}  // namespace

const AdamKernels* scalar_kernels() { return &kKernels; }

}  // namespace tandem
