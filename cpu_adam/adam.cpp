#include "cpu_adam/adam.h"

#include <array>
#include <string_view>

#include "core/base/error.h"
#include "cpu_adam/isa/kernels.h"

namespace tandem {

namespace {

constexpr int64_t kGrain = 16384;  // elements of a task, a multiple of 64; about 450 KB of traffic

const AdamKernels* kernels_of(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return scalar_kernels();
    case Isa::avx2:
      return avx2_kernels();
    case Isa::avx512:
      return avx512_kernels();
    case Isa::neon:
      return neon_kernels();
  }
  return nullptr;
}

AdamKernel kernel_of(Isa isa, const AdamSpans& spans, Decay decay) {
  const AdamKernels* kernels = kernels_of(isa);
  ASSERT(kernels != nullptr, "Adam on {}, which isn't built for this architecture", name_of(isa));
  for (size_t i = 0; i < kAdamTypes.size(); ++i)
    if (kAdamTypes[i].grad == spans.grad.dtype() && kAdamTypes[i].weight == spans.weight_out.dtype())
      return kernels->of[i][static_cast<size_t>(decay)];
  ASSERT(false, "Adam from a gradient of {} to weights of {}", name_of(spans.grad.dtype()),
         name_of(spans.weight_out.dtype()));
}

struct Plane {
  std::string_view name;
  const std::byte* data;
  int64_t n;
  size_t element;
  [[nodiscard]] const std::byte* end() const { return data + static_cast<size_t>(n) * element; }
};

Plane plane(std::string_view name, std::span<float> span) {
  return {name, reinterpret_cast<const std::byte*>(span.data()), static_cast<int64_t>(span.size()),
          sizeof(float)};
}
Plane plane(std::string_view name, const Tensor& tensor) {
  int64_t n = tensor.rank() == 0 ? 0 : 1;
  for (const int64_t dim : tensor.shape()) n *= dim;  // numel() is 0 where data is null
  return {name, tensor.bytes_at(0), n, size_of(tensor.dtype())};
}

void check_planes(const AdamSpans& s) {
  const std::array<Plane, 5> planes{plane("master", s.master), plane("moment1", s.moment1),
                                    plane("moment2", s.moment2), plane("grad", s.grad),
                                    plane("weight_out", s.weight_out)};
  for (const Plane& p : planes) {
    ASSERT(p.n == planes[0].n, "Adam over {} elements of {} and {} of master", p.n, p.name, planes[0].n);
    ASSERT(p.n == 0 || p.data != nullptr, "Adam over {} elements of {} at null", p.n, p.name);
  }
  for (size_t i = 0; i < planes.size(); ++i)
    for (size_t j = i + 1; j < planes.size(); ++j) {
      const Plane &a = planes[i], &b = planes[j];
      const bool in_place = i == 3 && j == 4 && a.data == b.data && a.element == b.element;
      ASSERT(in_place || a.end() <= b.data || b.end() <= a.data, "Adam over overlapping {} and {}", a.name,
             b.name);
    }
}

}  // namespace

bool adam_built_for(Isa isa) { return kernels_of(isa) != nullptr; }

void adam(Workers& workers, Isa isa, const AdamSpans& spans, Decay decay, const AdamScalars& scalars,
          float prediction) {
  check_planes(spans);
  const AdamKernel kernel = kernel_of(isa, spans, decay);
  const auto n = static_cast<int64_t>(spans.master.size());
  const size_t grad_bytes = size_of(spans.grad.dtype()), weight_bytes = size_of(spans.weight_out.dtype());
  workers.ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    const auto at = static_cast<size_t>(begin);
    kernel({spans.master.data() + at, spans.moment1.data() + at, spans.moment2.data() + at,
            spans.grad.bytes_at(at * grad_bytes), spans.weight_out.bytes_at(at * weight_bytes), end - begin,
            prediction},
           scalars);
  });
}

}  // namespace tandem
