#pragma once
// Two registers as one batch of twice the lanes, for lanes.h. A kernel's text says each step once for both:
// two chains of arithmetic run beside each other, and a store of narrower numbers has as many as fill a
// register. One gives what lanes.h asks for of a single register.

namespace tandem {

template <class BatchOfOne>
struct BatchInTwo {
  BatchOfOne low, high;
  BatchInTwo() = default;
  BatchInTwo(BatchOfOne low, BatchOfOne high) : low(low), high(high) {}
  explicit BatchInTwo(typename BatchOfOne::value_type all) : low(all), high(all) {}
  friend BatchInTwo operator+(BatchInTwo a, BatchInTwo b) { return {a.low + b.low, a.high + b.high}; }
  friend BatchInTwo operator-(BatchInTwo a, BatchInTwo b) { return {a.low - b.low, a.high - b.high}; }
  friend BatchInTwo operator*(BatchInTwo a, BatchInTwo b) { return {a.low * b.low, a.high * b.high}; }
  friend BatchInTwo operator&(BatchInTwo a, BatchInTwo b) { return {a.low & b.low, a.high & b.high}; }
  friend BatchInTwo operator|(BatchInTwo a, BatchInTwo b) { return {a.low | b.low, a.high | b.high}; }
  friend BatchInTwo operator^(BatchInTwo a, BatchInTwo b) { return {a.low ^ b.low, a.high ^ b.high}; }
};

template <class One>
struct InTwo {
  using Batch = BatchInTwo<typename One::Batch>;
  using WordBatch = BatchInTwo<typename One::WordBatch>;
  struct Mask {
    typename One::Mask low, high;
  };

  static Batch fused(Batch a, Batch b, Batch c) {
    return {One::fused(a.low, b.low, c.low), One::fused(a.high, b.high, c.high)};
  }
  static Batch root(Batch a) { return {One::root(a.low), One::root(a.high)}; }
  static Batch quotient(Batch a, Batch b) {
    return {One::quotient(a.low, b.low), One::quotient(a.high, b.high)};
  }
  static Mask is_nan(Batch a) { return {One::is_nan(a.low), One::is_nan(a.high)}; }
  static Mask at_least(WordBatch a, WordBatch b) {
    return {One::at_least(a.low, b.low), One::at_least(a.high, b.high)};
  }
  static WordBatch bits_of(Batch a) { return {One::bits_of(a.low), One::bits_of(a.high)}; }
  static Batch float_of(WordBatch a) { return {One::float_of(a.low), One::float_of(a.high)}; }
  static WordBatch choose(Mask where, WordBatch yes, WordBatch no) {
    return {One::choose(where.low, yes.low, no.low), One::choose(where.high, yes.high, no.high)};
  }
  static WordBatch least(WordBatch a, WordBatch b) {
    return {One::least(a.low, b.low), One::least(a.high, b.high)};
  }
  static WordBatch greatest(WordBatch a, WordBatch b) {
    return {One::greatest(a.low, b.low), One::greatest(a.high, b.high)};
  }
  template <int kBits>
  static WordBatch shift_left(WordBatch a) {
    return {One::template shift_left<kBits>(a.low), One::template shift_left<kBits>(a.high)};
  }
  template <int kBits>
  static WordBatch shift_right(WordBatch a) {
    return {One::template shift_right<kBits>(a.low), One::template shift_right<kBits>(a.high)};
  }
  static WordBatch product(WordBatch a, WordBatch b) {
    return {One::product(a.low, b.low), One::product(a.high, b.high)};
  }
  static WordBatch upper_halves(WordBatch a) { return {One::upper_halves(a.low), One::upper_halves(a.high)}; }
};

}  // namespace tandem
