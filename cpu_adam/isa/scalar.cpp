#include "cpu_adam/isa/adam_text.h"

namespace tandem {

namespace {

/// Four words.
struct FourWords {
  uint32_t x[4];
  FourWords() = default;
  FourWords(uint32_t a, uint32_t b, uint32_t c, uint32_t d) : x{a, b, c, d} {}
  explicit FourWords(uint32_t all) : x{all, all, all, all} {}
};
struct FourFlags {
  bool x[4];
};
template <class Out, class Operation>
Out by_word(const Operation& operation) {
  Out out;
  for (int k = 0; k < 4; ++k) out.x[k] = operation(k);
  return out;
}
FourWords operator+(const FourWords& a, const FourWords& b) {
  return by_word<FourWords>([&](int k) { return a.x[k] + b.x[k]; });
}
FourWords operator&(const FourWords& a, const FourWords& b) {
  return by_word<FourWords>([&](int k) { return a.x[k] & b.x[k]; });
}
FourWords least(const FourWords& a, const FourWords& b) {
  return by_word<FourWords>([&](int k) { return tandem::least(a.x[k], b.x[k]); });
}
FourWords greatest(const FourWords& a, const FourWords& b) {
  return by_word<FourWords>([&](int k) { return tandem::greatest(a.x[k], b.x[k]); });
}
FourFlags at_least(const FourWords& a, const FourWords& b) {
  return by_word<FourFlags>([&](int k) { return tandem::at_least(a.x[k], b.x[k]); });
}
FourWords choose(const FourFlags& where, const FourWords& yes, const FourWords& no) {
  return by_word<FourWords>([&](int k) { return tandem::choose(where.x[k], yes.x[k], no.x[k]); });
}
template <int kBits>
FourWords shift_left(const FourWords& a) {
  return by_word<FourWords>([&](int k) { return tandem::shift_left<kBits>(a.x[k]); });
}
template <int kBits>
FourWords shift_right(const FourWords& a) {
  return by_word<FourWords>([&](int k) { return tandem::shift_right<kBits>(a.x[k]); });
}

struct Scalar {
  using Value = float;
  using Word = uint32_t;
  using Counters = uint32_t;
  static constexpr int64_t kLanes = 1;
  using Four = FourWords;
  static Four four(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return {a, b, c, d}; }
  static Four largest_of_four(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return {a, b, c, d}; }
  template <int k>
  static uint32_t one_of_four(const Four& a) {
    return a.x[k];
  }
  static void store_four(uint16_t* first, uint16_t* second, const Four& a) {
    for (int k = 0; k < 2; ++k) first[k] = static_cast<uint16_t>(a.x[k]);
    for (int k = 0; k < 2; ++k) second[k] = static_cast<uint16_t>(a.x[2 + k]);
  }
  static constexpr int64_t kCounters = 1;
  static uint32_t counter_numbers() { return 0; }
  static void store_halves(uint32_t* to, uint32_t a) {
    to[0] = a & 0xFFFFu;
    to[1] = a >> 16;
  }
  static bool any_nan(float x) { return is_nan(x); }
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
