// Every op of the host device against double, in every instruction set that this CPU can run.
#include <gtest/gtest.h>

#include "cpu_adam/plain_pool.h"
#include "tests/gpu/op_cases_host.h"

namespace tandem::op_cases {
namespace {

class NumbersOfHostOps : public testing::TestWithParam<std::string> {};

TEST_P(NumbersOfHostOps, EqualDoubleWithinTheirRoundings) {
  const auto workers = make_plain_pool(2);
  const std::vector<OpCase> cases = cases_of(GetParam());
  for (const gpu::RowKernels* rows : gpu::row_kernels()) {
    HostRunner runner(*workers, *rows);
    for (const OpCase& op_case : cases) {
      const auto after = runner.run(op_case);
      for (size_t i = 0; i < after.size(); ++i)
        EXPECT_EQ(complaint(op_case.tensors[i], after[i]), "") << op_case.name << ", " << rows->isa;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Numbers, NumbersOfHostOps, testing::ValuesIn(op_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::op_cases
