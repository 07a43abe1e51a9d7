// The host device's ops give the same bits whatever runs them and wherever their tensors lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "cpu_adam/plain_pool.h"
#include "gpu/host/kernels/attention.h"
#include "tests/gpu/op_cases_host.h"

namespace tandem::op_cases {
namespace {

/// The name of the first tensor whose bits differ, "" if none.
std::string difference(const OpCase& op_case, const std::vector<std::vector<std::byte>>& a,
                       const std::vector<std::vector<std::byte>>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[i].size(); ++j)
      if (a[i][j] != b[i][j])
        return fmt::format("{}, byte {} of {}", op_case.tensors[i].name, j, a[i].size());
  return "";
}

TEST(IdentityOfHostOps, OverThreadCountsAndAddresses) {
  const auto one = make_plain_pool(1), two = make_plain_pool(2), three = make_plain_pool(3);
  const gpu::RowKernels& rows = *gpu::row_kernels().front();
  HostRunner alone(*one, rows), of_two(*two, rows), of_three(*three, rows);
  for (const std::string& op : op_names())
    for (const OpCase& op_case : cases_of(op)) {
      const auto expected = alone.run(op_case);
      EXPECT_EQ(difference(op_case, of_two.run(op_case), expected), "") << op << " " << op_case.name;
      EXPECT_EQ(difference(op_case, of_three.run(op_case, 1), expected), "")
          << op << " " << op_case.name << ", moved";
    }
}

/// Equal numbers; a NaN equals any NaN (f16's payloads differ).
bool same_numbers(const Values& a, const Values& b) {
  return std::ranges::equal(a, b,
                            [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

TEST(IdentityOfHostOps, UpdatesAndConversionsOverInstructionSets) {
  const auto pool = make_plain_pool(1);
  HostRunner slow(*pool, *gpu::row_kernels().back()), fast(*pool, *gpu::row_kernels().front());
  for (const std::string op : {"adam", "cast", "round_weights", "sum_of_squares", "add", "embedding_forward"})
    for (const OpCase& op_case : cases_of(op)) {
      const auto expected = slow.run(op_case);
      const auto got = fast.run(op_case);
      for (size_t i = 0; i < got.size(); ++i) {
        const CaseTensor& t = op_case.tensors[i];
        EXPECT_TRUE(same_numbers(decode(t.dtype, got[i]), decode(t.dtype, expected[i])))
            << op << " " << op_case.name << ", " << t.name;
      }
    }
}

/// Everything that both passes of attention write, for samples [first, first + batch) of two.
std::vector<Values> attention_of(int64_t first, int64_t batch, int64_t window, Workers& workers) {
  const int64_t length = 70, heads = 4, kv_heads = 2, width = 16;
  const AttentionShape s{batch, length, heads, kv_heads, width, window, 0.25f};
  const auto sample_values = [&](int64_t head_count, uint64_t seed) {
    const Values both = random_values(2 * length * head_count * width, DType::f32, seed);
    const auto begin = both.begin() + static_cast<ptrdiff_t>(first * length * head_count * width);
    return encode(DType::f32,
                  Values(begin, begin + static_cast<ptrdiff_t>(batch * length * head_count * width)));
  };
  std::vector<std::vector<std::byte>> memory = {sample_values(heads, 1), sample_values(kv_heads, 2),
                                                sample_values(kv_heads, 3), sample_values(heads, 4)};
  for (const size_t copy : {0, 0, 1, 2}) memory.push_back(memory[copy]);  // out, dq, dk, dv
  memory.emplace_back(static_cast<size_t>(batch * heads * length) * sizeof(float));
  const auto wide = [&](size_t i) {
    return Tensor(memory[i].data(), DType::f32, {batch, length, heads, width});
  };
  const auto narrow = [&](size_t i) {
    return Tensor(memory[i].data(), DType::f32, {batch, length, kv_heads, width});
  };
  const Tensor q = wide(0), k = narrow(1), v = narrow(2), dout = wide(3), out = wide(4), dq = wide(5),
               dk = narrow(6), dv = narrow(7), lse(memory[8].data(), DType::f32, {batch, heads, length});
  gpu::Scratch scratch;
  const gpu::KernelTools tools{*gpu::row_kernels().front(), scratch};
  gpu::attention_forward(workers, tools, out, lse, q, k, v, s);
  gpu::attention_backward(workers, tools, dq, dk, dv, dout, q, k, v, out, lse, s);
  std::vector<Values> results;
  for (size_t i = 4; i < memory.size(); ++i) results.push_back(decode(DType::f32, memory[i]));
  return results;
}

TEST(IdentityOfHostOps, AttentionOfTwoSamplesEqualsTwoOfOne) {
  const auto pool = make_plain_pool(2);
  for (const int64_t window : {0, 33}) {
    const auto both = attention_of(0, 2, window, *pool);
    auto apart = attention_of(0, 1, window, *pool);
    const auto second = attention_of(1, 1, window, *pool);
    for (size_t i = 0; i < both.size(); ++i) {
      apart[i].insert(apart[i].end(), second[i].begin(), second[i].end());
      EXPECT_EQ(apart[i], both[i]) << "result " << i << ", window " << window;
    }
  }
}

}  // namespace
}  // namespace tandem::op_cases
