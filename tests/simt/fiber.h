#pragma once
// A function on a stack of its own, left and entered again where it left. AddressSanitizer is told of each
// switch.
#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace tandem::simt {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes body what the next resume enters. What an earlier body left undone is dropped, its destructors not
  /// called.
  void start(std::function<void()> body);
  /// Runs the body until it leaves or ends. Not from within a fiber.
  void resume();
  /// Back to whoever resumed. Only from within the body.
  void leave();
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  static void enter(unsigned low, unsigned high);
  void run();

  std::byte* memory_;  // a page that nobody may touch, then the stack
  ucontext_t inside_{}, outside_{};
  std::function<void()> body_;
  bool ended_ = true;
  void* fake_stack_ = nullptr;  // AddressSanitizer's, of the side that doesn't run
  const void* outside_bottom_ = nullptr;
  size_t outside_size_ = 0;
};

}  // namespace tandem::simt
