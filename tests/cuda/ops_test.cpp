// The ops of the CUDA device from the one table: checks, launches of nvcc's code, products, streams and
// workspace, on the fake runtime and the fake library.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/cuda/ops_rig.h"
#include "tests/cuda_fake/state.h"
#include "tests/gpu/op_cases.h"

namespace tandem::gpu::cuda {
namespace {

/// What CudaOps has no kernels for.
constexpr std::string_view kAbsent[] = {"attention_forward", "attention_backward"};

std::vector<std::string> ops_with_kernels() {
  std::vector<std::string> ops = op_cases::op_names();
  std::erase_if(ops,
                [](const std::string& op) { return std::ranges::find(kAbsent, op) != std::end(kAbsent); });
  return ops;
}

/// Pinned bytes of one tensor, and its device memory.
struct Placed {
  Placed(Device& device, const op_cases::CaseTensor& t)
      : bytes(op_cases::encode(t.dtype, t.before)),
        pin(device.pin(bytes)),
        buffer(device.allocate(bytes.size(), "test")),
        host(bytes.data(), t.dtype, std::span<const int64_t>(t.shape)),
        tensor(buffer.raw(), t.dtype, std::span<const int64_t>(t.shape)) {}
  std::vector<std::byte> bytes;
  Pin pin;
  Buffer buffer;
  Tensor host, tensor;
};

/// What the table says against the call's results on a device; "" if nothing.
std::string complaints(Device& device, const op_cases::OpCase& op_case) {
  std::vector<std::unique_ptr<Placed>> placed;
  std::vector<Tensor> tensors;
  for (const op_cases::CaseTensor& t : op_case.tensors) {
    placed.push_back(std::make_unique<Placed>(device, t));
    tensors.push_back(placed.back()->tensor);
  }
  const auto stream = device.stream("compute", Purpose::compute, 0);
  for (const auto& p : placed) stream->copy(p->tensor, p->host);
  op_case.run(device.ops(), *stream, tensors);
  for (const auto& p : placed) stream->copy(p->host, p->tensor);
  stream->record().wait();
  std::string all;
  for (size_t i = 0; i < placed.size(); ++i) all += op_cases::complaint(op_case.tensors[i], placed[i]->bytes);
  return all;
}

class FakeCudaOpsNumbers : public testing::TestWithParam<std::string> {};

TEST_P(FakeCudaOpsNumbers, EqualDoubleWithinTheirRoundings) {
  OpsRig rig(1);
  for (const op_cases::OpCase& op_case : op_cases::cases_of(GetParam()))
    EXPECT_EQ(complaints(rig.device, op_case), "") << op_case.name;
}

INSTANTIATE_TEST_SUITE_P(Cuda, FakeCudaOpsNumbers, testing::ValuesIn(ops_with_kernels()),
                         [](const auto& info) { return info.param; });

/// Kernels in the emulator, but for the launch of this number.
void run_all_but(int number, const std::shared_ptr<int>& launches) {
  cuda_fake::run_kernels_in_the_emulator(1);
  cuda_fake::run_kernels_by(
      [=, bind = cuda_fake::state().bind](const std::string& name, dim3 grid, dim3 block, void** arguments) {
        cuda_fake::BoundKernel kernel = bind(name, grid, block, arguments);
        if ((*launches)++ == number) kernel.run = [] {};
        return kernel;
      });
}

/// Proves that the table sees every launch: each one is left out once.
TEST(FakeCudaOps, NoticeALaunchThatIsLeftOut) {
  for (const std::string& op : ops_with_kernels()) {
    const op_cases::OpCase op_case = op_cases::cases_of(op).back();
    const auto launches = std::make_shared<int>(0);
    OpsRig rig(1);
    run_all_but(-1, launches);
    EXPECT_EQ(complaints(rig.device, op_case), "");
    const int count = std::exchange(*launches, 0);
    EXPECT_EQ(count == 0, op.starts_with("linear_")) << op;
    for (int number = 0; number < count; ++number, *launches = 0) {
      run_all_but(number, launches);
      EXPECT_NE(complaints(rig.device, op_case), "") << op << ", launch " << number << " of " << count;
    }
  }
}

/// Proves that each product of the table would show a wrong transpose.
TEST(FakeCudaOps, NoticeATransposedOperand) {
  CublasLt faulty = cuda_fake::cublas_lt();
  faulty.desc_set = [](cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value,
                       size_t bytes) {
    int32_t op = 0;
    std::memcpy(&op, value, sizeof op);
    op = op == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N;
    return cuda_fake::cublas_lt().desc_set(desc, attribute, &op, bytes);
  };
  for (const char* op : {"linear_forward", "linear_backward_input", "linear_backward_weight"})
    for (const op_cases::OpCase& op_case : op_cases::cases_of(op)) {
      if (op_case.tensors[0].shape == std::vector<int64_t>{1, 1}) continue;  // its own transpose
      OpsRig rig(1, faulty);
      EXPECT_TRUE(contains(message_of<Error>([&] { (void)complaints(rig.device, op_case); }),
                           "CUBLAS_STATUS_INVALID_VALUE"))
          << op << " " << op_case.name;
      EXPECT_THROW(rig.device.check(), Error);
    }
}

}  // namespace
}  // namespace tandem::gpu::cuda
