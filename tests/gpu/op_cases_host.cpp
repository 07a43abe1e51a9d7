#include "tests/gpu/op_cases_host.h"

#include <cstring>
#include <new>

namespace tandem::op_cases {

namespace {

/// Bytes at `shift` after a multiple of 64, exactly as many as asked for (so that sanitizers see the ends).
class Placed {
 public:
  Placed(const std::vector<std::byte>& bytes, size_t shift)
      : shift_(shift),
        size_(bytes.size()),
        memory_(::operator new (shift + bytes.size(), std::align_val_t{64})) {
    std::memcpy(data(), bytes.data(), size_);
  }
  Placed(Placed&& other) noexcept : shift_(other.shift_), size_(other.size_), memory_(other.memory_) {
    other.memory_ = nullptr;
  }
  ~Placed() { ::operator delete (memory_, std::align_val_t{64}); }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_) + shift_; }
  [[nodiscard]] std::vector<std::byte> bytes() const { return {data(), data() + size_}; }

 private:
  size_t shift_, size_;
  void* memory_;
};

}  // namespace

std::vector<std::vector<std::byte>> run_at_once(Ops& ops, const OpCase& op_case, int shift) {
  std::vector<Placed> memory;
  std::vector<Tensor> tensors;
  for (const CaseTensor& t : op_case.tensors) {
    memory.emplace_back(encode(t.dtype, t.before), static_cast<size_t>(shift) * size_of(t.dtype));
    tensors.emplace_back(memory.back().data(), t.dtype, std::span<const int64_t>(t.shape));
  }
  NamedStream stream;
  op_case.run(ops, stream, tensors);
  std::vector<std::vector<std::byte>> after;
  for (const Placed& m : memory) after.push_back(m.bytes());
  return after;
}

}  // namespace tandem::op_cases
