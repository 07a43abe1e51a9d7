#include "cpu_adam/adam_checks.h"

#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace tandem {

namespace {

enum class Use : uint8_t { in, out, update };

struct Plane {
  std::string_view name;
  const std::byte* data;
  size_t bytes, element;
  Use use;
  [[nodiscard]] const std::byte* end() const { return data + bytes; }
};

int64_t elements_of(const Tensor& tensor) {
  int64_t n = tensor.rank() == 0 ? 0 : 1;
  for (const int64_t dim : tensor.shape()) n *= dim;  // numel() is 0 where data is null
  return n;
}

Plane weights(std::string_view name, const Tensor& tensor, int64_t n, Use use) {
  ASSERT(elements_of(tensor) == n, "Adam over {} elements of {} and {} of grad", elements_of(tensor), name,
         n);
  const size_t element = size_of(tensor.dtype());
  return {name, tensor.bytes_at(0), static_cast<size_t>(n) * element, element, use};
}

Plane state(StatePlane which, const AdamStates& states, std::span<std::byte> bytes, int64_t n) {
  const std::string_view name = kStatePlaneNames[static_cast<size_t>(which)];
  const size_t wanted = plane_bytes(states.format, which, n);
  ASSERT(bytes.size() == wanted, "Adam over {} bytes of {}: {} elements of {} states are {}", bytes.size(),
         name, n, name_of(states.format), wanted);
  const size_t element = shape_of(states.format, which).bytes;
  return {name, bytes.data(), wanted, element == 0 ? 1 : element, Use::update};
}

std::vector<Plane> planes_of(const AdamSpans& s, int64_t n) {
  const AdamStates& states = s.states;
  std::vector<Plane> planes{state(StatePlane::master, states, states.master, n),
                            state(StatePlane::moment1, states, states.moment1, n),
                            state(StatePlane::moment2, states, states.moment2, n),
                            state(StatePlane::scale1, states, states.scale1, n),
                            state(StatePlane::scale2, states, states.scale2, n),
                            weights("grad", s.grad, n, Use::in),
                            weights("weight_out", s.weight_out, n, Use::out)};
  const bool beside = row_of(states.format.master).beside_weights;
  planes.push_back(weights("upper_in", s.upper_in, beside ? n : 0, Use::in));
  planes.push_back(weights("upper_out", s.upper_out, beside ? n : 0, Use::out));
  return planes;
}

void check_overlaps(const std::vector<Plane>& planes, bool publishes_upper) {
  for (size_t i = 0; i < planes.size(); ++i)
    for (size_t j = i + 1; j < planes.size(); ++j) {
      const Plane &a = planes[i], &b = planes[j];
      if (a.bytes == 0 || b.bytes == 0) continue;
      const bool same = a.data == b.data && a.element == b.element;
      const bool in_place =
          same && ((a.use == Use::in && b.use == Use::out) || (a.use == Use::out && b.use == Use::in) ||
                   (a.use == Use::out && b.use == Use::out && publishes_upper));
      ASSERT(in_place || a.end() <= b.data || b.end() <= a.data, "Adam over overlapping {} and {}", a.name,
             b.name);
    }
}

}  // namespace

int64_t check_adam(const AdamSpans& s, float prediction, const AdamPlace& place) {
  const int64_t n = elements_of(s.grad);
  const std::vector<Plane> planes = planes_of(s, n);
  for (const Plane& p : planes) {
    ASSERT(p.bytes == 0 || p.data != nullptr, "Adam over {} elements of {} at null", n, p.name);
    ASSERT(reinterpret_cast<uintptr_t>(p.data) % p.element == 0 || p.bytes == 0,
           "Adam over {}, which isn't aligned to its elements of {} bytes", p.name, p.element);
  }
  const StateFormat format = s.states.format;
  const bool beside = row_of(format.master).beside_weights, publishes_upper = beside && prediction == 0;
  if (beside && n > 0) {
    ASSERT(s.upper_in.dtype() == DType::bf16 && s.upper_out.dtype() == DType::bf16,
           "Adam on {} states beside weights of {} and {}", name_of(format), name_of(s.upper_in.dtype()),
           name_of(s.upper_out.dtype()));
  }
  check_overlaps(planes, publishes_upper);
  ASSERT(place.first >= 0 && place.first % kDrawBlock == 0, "Adam from element {}, not a multiple of {}",
         place.first, kDrawBlock);
  ASSERT(!stochastic(format) || place.key.t > 0, "Adam on {} states without a key for their random bits",
         name_of(format));
  return n;
}

}  // namespace tandem
