#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tandem::simt {

namespace {

constexpr size_t kGuard = 4096;
constexpr size_t kStack = 64 * 1024;

// What AddressSanitizer asks of a switch: on one side before it, on the other after it.
#if defined(__SANITIZE_ADDRESS__)
void before_switch(void** own_fake_stack, const void* to_bottom, size_t to_size) {
  __sanitizer_start_switch_fiber(own_fake_stack, to_bottom, to_size);
}
void after_switch(void* own_fake_stack, const void** from_bottom, size_t* from_size) {
  __sanitizer_finish_switch_fiber(own_fake_stack, from_bottom, from_size);
}
void forget_frames(void* stack, size_t size) { __asan_unpoison_memory_region(stack, size); }
#else
void before_switch(void**, const void*, size_t) {}
void after_switch(void*, const void**, size_t*) {}
void forget_frames(void*, size_t) {}
#endif

}  // namespace

Fiber::Fiber() {
  void* memory = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(memory);
}

Fiber::~Fiber() {
  forget_frames(memory_ + kGuard, kStack);
  munmap(memory_, kGuard + kStack);
}

void Fiber::start(std::function<void()> body) {
  forget_frames(memory_ + kGuard, kStack);
  body_ = std::move(body);
  ended_ = false;
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = memory_ + kGuard;
  inside_.uc_stack.ss_size = kStack;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self),
              static_cast<unsigned>(self >> 32));
}

void Fiber::enter(unsigned low, unsigned high) {
  reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low)->run();
}

void Fiber::run() {
  after_switch(nullptr, &outside_bottom_, &outside_size_);
  body_();
  ended_ = true;
  before_switch(nullptr, outside_bottom_, outside_size_);
  setcontext(&outside_);
}

void Fiber::resume() {
  void* fake_stack = nullptr;
  before_switch(&fake_stack, memory_ + kGuard, kStack);
  swapcontext(&outside_, &inside_);
  after_switch(fake_stack, nullptr, nullptr);
}

void Fiber::leave() {
  before_switch(&fake_stack_, outside_bottom_, outside_size_);
  swapcontext(&inside_, &outside_);
  after_switch(fake_stack_, &outside_bottom_, &outside_size_);
}

}  // namespace tandem::simt
