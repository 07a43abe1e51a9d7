#pragma once
// Runs the op cases on the host device's kernels, at once and in plain memory: no streams, no lanes.
#include <algorithm>
#include <memory>

#include "gpu/host/host_ops.h"
#include "tests/gpu/op_cases.h"

namespace tandem::op_cases {

/// A stream that only carries a name.
class NamedStream : public Stream {
 public:
  [[nodiscard]] std::string_view name() const override { return "test"; }
  [[nodiscard]] Fence record() override { return {}; }
  void wait(const Fence&) override {}
  void copy(Tensor, Tensor) override { ASSERT(false, "not a device"); }
  void fill_zero(Tensor) override { ASSERT(false, "not a device"); }
  void range(std::string_view) override {}
  [[nodiscard]] StreamTimes times(const Fence&, const Fence&) const override { return {}; }
};

/// Runs a kernel as it is enqueued. A kernel that opens memory which it did not declare is an error.
class ImmediateQueue : public gpu::KernelQueue, private gpu::KernelContext {
 public:
  explicit ImmediateQueue(Workers& workers) : workers_(workers) {}
  void enqueue(Stream&, gpu::Kernel kernel) override {
    current_ = &kernel;
    kernel.body(*this);
    current_ = nullptr;
  }

 private:
  [[nodiscard]] Workers& workers() override { return workers_; }
  [[nodiscard]] Tensor open(Tensor device) const override {
    const auto same = [&](const Tensor& t) { return t.raw() == device.raw() && t.bytes() == device.bytes(); };
    ASSERT(std::ranges::any_of(current_->reads, same) || std::ranges::any_of(current_->writes, same),
           "{} opens {} bytes that it did not declare", current_->name, device.bytes());
    return device;
  }
  Workers& workers_;
  const gpu::Kernel* current_ = nullptr;
};

/// The tensors' bytes after the case's call on ops that work at once, in plain memory. Every tensor lies
/// `shift` elements after a multiple of 64 bytes.
std::vector<std::vector<std::byte>> run_at_once(Ops& ops, const OpCase& op_case, int shift = 0);

/// Runs cases with these workers and row kernels.
class HostRunner {
 public:
  HostRunner(Workers& workers, const gpu::RowKernels& rows)
      : queue_(workers), ops_(gpu::make_host_ops(queue_, rows)) {}
  [[nodiscard]] std::vector<std::vector<std::byte>> run(const OpCase& op_case, int shift = 0) {
    return run_at_once(*ops_, op_case, shift);
  }

 private:
  ImmediateQueue queue_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace tandem::op_cases
