#pragma once
// The emulator's body of gpu/kernels/simt.h: every word reports to the functions of tandem::gpu::simt, which
// only the tests' emulator (tests/simt/emulator.cpp) implements; it names the thread whose turn it is.
#include <bit>
#include <cmath>
#include <source_location>

// A mutant of the kernels (tests/simt) has a namespace of its own.
#if !defined(TANDEM_SIMT)
#define TANDEM_SIMT simt_emulated
#endif
#define KERNEL inline
#define DEVICE inline
#define UNROLL
/// One array for each block and each instance of the function that declares it, as with __shared__.
#define SHARED_ARRAY(T, name, n)        \
  static constexpr char name##_key = 0; \
  const ::tandem::gpu::simt::SharedArray<T> name(#name, &name##_key, n)

namespace tandem::gpu::simt {

/// Where the running thread stands.
struct Place {
  int64_t block, blocks;
  int thread, threads;
};
Place place();

/// Where in the source a word stands: threads that meet must have called it from one place.
using Site = std::source_location;

void barrier(const Site& site);
/// What lane `source` of the warp gave. All lanes of the mask meet here.
uint64_t exchange(uint32_t lanes, uint64_t value, int source, const Site& site);
uint32_t vote(uint32_t lanes, bool where, const Site& site);

enum class Access : uint8_t { read, write };
/// Called before each access to global memory; `bytes` is also the alignment that it needs.
void touch_global(const void* p, size_t bytes, Access access);

/// Memory of a shared array of the running block, made at its first use.
class SharedMemory;
SharedMemory& shared_memory(const char* name, const void* key, size_t element_bytes, int64_t count);
/// Called before each access; the address of the element.
void* touch_shared(SharedMemory& memory, int64_t index, Access access);

/// One element of a shared array, as the running thread sees it.
template <class T>
class SharedElement {
 public:
  SharedElement(SharedMemory& memory, int64_t index) : memory_(memory), index_(index) {}
  operator T() const {  // NOLINT: reads as the element it is
    T value;
    std::memcpy(&value, touch_shared(memory_, index_, Access::read), sizeof(T));
    return value;
  }
  void operator=(T value) const {  // NOLINT: an assignment to memory
    std::memcpy(touch_shared(memory_, index_, Access::write), &value, sizeof(T));
  }

 private:
  SharedMemory& memory_;
  int64_t index_;
};

template <class T>
class SharedArray {
 public:
  SharedArray(const char* name, const void* key, int64_t count)
      : memory_(shared_memory(name, key, sizeof(T), count)) {}
  SharedElement<T> operator[](int64_t index) const { return {memory_, index}; }

 private:
  SharedMemory& memory_;
};

}  // namespace tandem::gpu::simt

namespace tandem::gpu::TANDEM_SIMT {

inline int thread() { return simt::place().thread; }
inline int threads() { return simt::place().threads; }
inline int64_t block() { return simt::place().block; }
inline int64_t blocks() { return simt::place().blocks; }
inline int lane() { return thread() % kWarp; }
inline int warp() { return thread() / kWarp; }

inline void block_barrier(const simt::Site& site = simt::Site::current()) { simt::barrier(site); }
template <class T>
T shuffle_xor(uint32_t lanes, T x, int flip, const simt::Site& site = simt::Site::current()) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t value = 0;
  std::memcpy(&value, &x, sizeof(T));
  value = simt::exchange(lanes, value, lane() ^ flip, site);
  std::memcpy(&x, &value, sizeof(T));
  return x;
}
inline uint32_t ballot(uint32_t lanes, bool where, const simt::Site& site = simt::Site::current()) {
  return simt::vote(lanes, where, site);
}

template <class T>
T read(const T* p) {
  simt::touch_global(p, sizeof(T), simt::Access::read);
  return *p;
}
template <class T>
void write(T* p, T x) {
  simt::touch_global(p, sizeof(T), simt::Access::write);
  *p = x;
}
template <class T>
Wide<T> read_wide(const T* p) {
  simt::touch_global(p, sizeof(Wide<T>), simt::Access::read);
  Wide<T> wide;
  std::memcpy(wide.x, p, sizeof wide);
  return wide;
}
template <class T>
void write_wide(T* p, const Wide<T>& wide) {
  simt::touch_global(p, sizeof wide, simt::Access::write);
  std::memcpy(p, wide.x, sizeof wide);
}

template <class T>
float widen(T x) {
  return to_float(x);
}
template <class T>
T narrow(float x) {
  return round_to<T>(x);
}

inline int lowest_bit(uint32_t bits) { return std::countr_zero(bits); }

}  // namespace tandem::gpu::TANDEM_SIMT
