#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace tandem::gpu {

/// Host memory that kernels' tasks work in: one buffer per task that runs at once, kept and taken again.
/// Thread-safe. Contents are undefined.
class Scratch {
  struct Buffer;

 public:
  Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();  ///< all loans must be back

  /// One task's buffer, cut from the front; goes back on destruction.
  class Loan {
   public:
    Loan(Loan&&) = delete;
    ~Loan();
    /// The next `count` floats, at a multiple of 64 bytes.
    [[nodiscard]] float* cut(int64_t count);

   private:
    friend class Scratch;
    Loan(Scratch& owner, std::unique_ptr<Buffer> buffer);
    Scratch& owner_;
    std::unique_ptr<Buffer> buffer_;
    int64_t used_ = 0;
  };

  /// A buffer for cuts of rounded(count) floats in all.
  [[nodiscard]] Loan take(int64_t floats);
  /// What one cut costs.
  [[nodiscard]] static int64_t rounded(int64_t count) { return (count + 15) / 16 * 16; }
  /// Bytes held, lent or free.
  [[nodiscard]] size_t bytes() const;

 private:
  void give_back(std::unique_ptr<Buffer> buffer);
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Buffer>> free_;
  size_t buffers_ = 0, bytes_ = 0;
};

}  // namespace tandem::gpu
