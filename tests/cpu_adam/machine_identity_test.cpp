#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "adam_cases.h"
#include "cpu_adam/host_reduce.h"
#include "cpu_adam/state_convert.h"

// The same bits on another architecture and from another compiler's flags: one line for each kind of pass,
// with a hash of all that three updates leave. (An ulp before a cut to 8 bits changes one code of some 10^5,
// so a contraction there could pass: isa_objects_test.cpp looks for that.) ./dev test has one build write the
// lines and others compare theirs.
//   TANDEM_IDENTITY_OUT=FILE      write them
//   TANDEM_IDENTITY_EXPECT=FILE   compare with these

namespace tandem {
namespace {

constexpr int64_t kElements = 1024 + 33;

/// FNV-1a (Fowler, Noll, Vo), 64 bits.
class Fnv {
 public:
  void add(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      hash_ = (hash_ ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001B3u;
  }
  template <class T>
  void add(const std::vector<T, Aligned64<T>>& plane) {
    add(plane.data(), plane.size() * sizeof(T));
  }
  [[nodiscard]] std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 0xCBF29CE484222325u;
};

/// Finite: the architectures differ in which NaN an invalid operation gives. Infinite moments come up,
/// though.
float finite(float x) { return std::isfinite(x) ? x : 0.5f; }
/// A finite gradient, also when it is rounded to the type.
void put_gradient(std::byte* at, DType dtype, float g) {
  put(at, dtype, g);
  put(at, dtype, finite(get(at, dtype)));
}

void start(Planes& planes, Workers& workers) {
  std::vector<float> master, moment1, moment2;
  for (int64_t i = 0; i < planes.n; ++i) {
    const Element e = element(i);
    master.push_back(finite(e.p));
    moment1.push_back(e.m);
    moment2.push_back(e.v);
  }
  const AdamSpans spans = planes.spans(false);
  encode_states(workers, spans.states, spans.upper_in, {master, moment1, moment2}, test_place(64));
}

std::string hash_of_three_updates(Workers& workers, Isa isa, const AdamCase& c) {
  Planes planes(kElements, 0, c);
  start(planes, workers);
  Fnv hash;
  for (uint32_t t = 1; t <= 3; ++t) {
    for (int64_t i = 0; i < planes.n; ++i)
      put_gradient(planes.grad_at(i), planes.grad_type, element(i + 10000 * t).g);
    const AdamSpans spans = planes.spans(t % 2 == 0);
    adam(workers, isa, spans, c.decay, test_scalars(t), c.prediction, {{77, 5, t}, 64});
    for (const auto* plane : {&planes.master, &planes.moment1, &planes.moment2, &planes.scale1,
                              &planes.scale2, &planes.grad, &planes.weight, &planes.upper_new})
      hash.add(*plane);
    // The next update's masters stand beside what this one gave.
    if (planes.beside() && spans.upper_out.raw() != spans.upper_in.raw())
      std::memcpy(spans.upper_in.raw(), spans.upper_out.raw(), spans.upper_in.bytes());
    hash.add(planes.upper);
  }
  return hash.text();
}

/// Weights of all kinds, rounded and made wide again, and the sum of finite gradients.
std::string hash_of_reductions(Workers& workers, Isa isa, DType dtype) {
  constexpr int64_t n = 3 * 4096 + 77;
  std::vector<float> weights, wide(n);
  std::vector<std::byte> rounded(n * size_of(dtype)), gradients = rounded;
  for (int64_t i = 0; i < n; ++i) {
    weights.push_back(element(i).p);
    put_gradient(gradients.data() + static_cast<size_t>(i) * size_of(dtype), dtype, element(i).g);
  }
  const Tensor plane(rounded.data(), dtype, {n});
  round_weights(workers, isa, plane, {weights.data(), DType::f32, {n}});
  widen(workers, isa, {wide.data(), DType::f32, {n}}, plane);
  const double sum = sum_of_squares(workers, isa, {gradients.data(), dtype, {n}}).sum_of_squares;
  Fnv hash;
  hash.add(rounded.data(), rounded.size());
  hash.add(wide.data(), wide.size() * sizeof(float));
  hash.add(&sum, sizeof sum);
  return hash.text();
}

/// The lines of one instruction set.
std::vector<std::string> lines_of(Isa isa) {
  const auto workers = make_workers(PoolKind::plain, 2);
  std::vector<std::string> lines;
  for (const AdamCase& c : all_adam_cases())
    lines.push_back(fmt::format("{}: {}", label(c), hash_of_three_updates(*workers, isa, c)));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    lines.push_back(fmt::format("{} reduced: {}", name_of(dtype), hash_of_reductions(*workers, isa, dtype)));
  return lines;
}

std::vector<std::string> lines_of(const char* file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(IdentityOverMachines, ThreeUpdatesOfEveryKindLeaveTheSameBits) {
  const char *out = std::getenv("TANDEM_IDENTITY_OUT"), *expect = std::getenv("TANDEM_IDENTITY_EXPECT");
  const auto wanted = expect != nullptr ? lines_of(expect) : lines_of(Isa::scalar);
  for (const Isa isa : usable_isas()) {
    const auto got = lines_of(isa);
    ASSERT_EQ(got.size(), wanted.size());  // 0: the build that writes the file hasn't run
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], wanted[i]) << name_of(isa);
  }
  if (out == nullptr) return;
  std::ofstream file(out);
  for (const std::string& line : wanted) file << line << "\n";
}

}  // namespace
}  // namespace tandem
