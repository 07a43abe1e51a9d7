#include "tests/cuda_fake/host_work.h"

#include "core/base/error.h"
#include "tests/cuda_fake/state.h"

namespace tandem::cuda_fake {

namespace {

struct Operand {
  Tensor tensor;
  Place place;
};

Tensor open(const std::vector<Operand>& operands, const std::string& name, Tensor tensor) {
  if (tensor.empty()) return tensor;
  for (const auto& [declared, place] : operands) {
    const std::byte* begin = declared.bytes_at(0);
    if (tensor.bytes_at(0) < begin || tensor.bytes_at(tensor.bytes()) > begin + declared.bytes()) continue;
    return {place.bytes + (tensor.bytes_at(0) - begin), tensor.dtype(), tensor.shape()};
  }
  throw InternalError(__FILE__, __LINE__, name + " opens a tensor that it did not declare");
}

}  // namespace

cudaError_t launch_host_work(cudaStream_t stream, const std::string& name, const std::vector<Tensor>& reads,
                             const std::vector<Tensor>& writes, std::function<void(const Open&)> body) {
  FAKE_CALL(cudaLaunchKernel);
  std::vector<Operand> operands;
  Operation operation{.text = name, .is_work = true};
  for (const std::vector<Tensor>* tensors : {&reads, &writes})
    for (const Tensor& tensor : *tensors) {
      if (tensor.empty()) continue;
      Place place = place_of(tensor.raw(), tensor.bytes(), name);
      if (place.kind == Place::Kind::unknown) return done(cudaErrorInvalidValue);
      if (place.kind != Place::Kind::device) return done(fault(name + ": host memory"));
      operands.push_back({tensor, std::move(place)});
      operation.uses.push_back({tensor.bytes_at(0), tensor.bytes()});
      operation.accesses.push_back(tensors == &reads ? gpu::read_of(tensor) : gpu::write_of(tensor));
    }
  operation.run = [name, operands = std::move(operands), body = std::move(body)] {
    try {
      body([&](Tensor tensor) { return open(operands, name, tensor); });
    } catch (const std::exception& error) {
      (void)fault(name + ": " + error.what());
    }
  };
  return done(enqueue(stream, std::move(operation)));
}

}  // namespace tandem::cuda_fake
