#include "gpu/host/kernels/scratch.h"

#include <new>
#include <utility>

#include "core/base/error.h"

namespace tandem::gpu {

constexpr std::align_val_t kAlignment{64};

struct Scratch::Buffer {
  explicit Buffer(int64_t count)
      : size(count),
        data(static_cast<float*>(::operator new(static_cast<size_t>(count) * sizeof(float), kAlignment))) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { ::operator delete(data, kAlignment); }
  const int64_t size;
  float* const data;
};

Scratch::Scratch() = default;
Scratch::~Scratch() = default;

Scratch::Loan::Loan(Scratch& owner, std::unique_ptr<Buffer> buffer)
    : owner_(owner), buffer_(std::move(buffer)) {}
Scratch::Loan::~Loan() { owner_.give_back(std::move(buffer_)); }

float* Scratch::Loan::cut(int64_t count) {
  const int64_t begin = used_;
  used_ += rounded(count);
  ASSERT(used_ <= buffer_->size, "scratch of {} floats, {} cut", buffer_->size, used_);
  return buffer_->data + begin;
}

Scratch::Loan Scratch::take(int64_t floats) {
  std::unique_ptr<Buffer> buffer;
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(++buffers_);  // giving back never allocates
    } else {
      buffer = std::move(free_.back());
      free_.pop_back();
    }
  }
  const int64_t before = buffer ? buffer->size : 0;
  if (!buffer || before < floats) {
    buffer.reset();  // the small one goes first: never both
    buffer = std::make_unique<Buffer>(floats);
    const std::lock_guard lock(mutex_);
    bytes_ += static_cast<size_t>(floats - before) * sizeof(float);
  }
  return {*this, std::move(buffer)};
}

void Scratch::give_back(std::unique_ptr<Buffer> buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(buffer));
}

size_t Scratch::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace tandem::gpu
