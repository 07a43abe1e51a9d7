#include "cpu_adam/adam.h"

#include <array>
#include <vector>

#include "core/base/error.h"
#include "cpu_adam/adam_checks.h"
#include "cpu_adam/isa/kernels.h"

namespace tandem {

namespace {

/// In the order of Isa.
constexpr std::array kKernels{scalar_kernels, avx2_kernels, avx512_kernels, neon_kernels};

const AdamKernels* kernels_of(Isa isa) { return kKernels.at(static_cast<size_t>(isa))(); }

AdamKernel kernel_of(Isa isa, const AdamSpans& spans, Decay decay) {
  const AdamKernels* kernels = kernels_of(isa);
  ASSERT(kernels != nullptr, "Adam on {}, which isn't built for this architecture", name_of(isa));
  constexpr auto kFormats = all_state_formats();
  for (size_t format = 0; format < kFormats.size(); ++format)
    for (size_t i = 0; i < kAdamTypes.size(); ++i)
      if (kFormats[format] == spans.states.format && kAdamTypes[i].grad == spans.grad.dtype() &&
          kAdamTypes[i].weight == spans.weight_out.dtype()) {
        const AdamKernel kernel = kernels->of[format][i][static_cast<size_t>(decay)];
        if (kernel != nullptr) return kernel;
      }
  ASSERT(false, "Adam on {} states from a gradient of {} to weights of {}", name_of(spans.states.format),
         name_of(spans.grad.dtype()), name_of(spans.weight_out.dtype()));
}

/// Of a plane of the states, where element i is.
std::byte* at(StateFormat format, StatePlane plane, std::span<std::byte> bytes, int64_t i) {
  return bytes.data() + plane_bytes(format, plane, i);
}
std::byte* at(const Tensor& tensor, int64_t i) {
  return tensor.bytes_at(static_cast<size_t>(i) * size_of(tensor.dtype()));
}

/// Weights that go to memory that the pass doesn't read would first be fetched into the caches for nothing:
/// stored past them, passes measured 3 to 9 % faster on one core.
bool streams(const AdamSpans& s) {
  const bool in_place = s.weight_out.raw() == s.grad.raw() || s.weight_out.raw() == s.upper_in.raw();
  return !in_place && reinterpret_cast<uintptr_t>(s.weight_out.raw()) % 64 == 0;
}

AdamRange range_of(const AdamSpans& s, int64_t begin, int64_t end, float prediction, const AdamPlace& place,
                   AdamSums* sums) {
  const AdamStates& states = s.states;
  const bool apart = s.upper_out.raw() != s.weight_out.raw();
  const auto plane = [&](StatePlane which, std::span<std::byte> bytes) {
    return static_cast<void*>(at(states.format, which, bytes, begin));
  };
  return {plane(StatePlane::master, states.master),
          plane(StatePlane::moment1, states.moment1),
          plane(StatePlane::moment2, states.moment2),
          static_cast<uint16_t*>(plane(StatePlane::scale1, states.scale1)),
          static_cast<uint16_t*>(plane(StatePlane::scale2, states.scale2)),
          at(s.grad, begin),
          reinterpret_cast<const uint16_t*>(at(s.upper_in, begin)),
          apart ? reinterpret_cast<uint16_t*>(at(s.upper_out, begin)) : nullptr,
          at(s.weight_out, begin),
          end - begin,
          prediction,
          prediction != 0,
          place.key,
          (place.first + begin) / kDrawBlock,
          streams(s),
          sums};
}

}  // namespace

bool adam_built_for(Isa isa) { return kernels_of(isa) != nullptr; }

void adam(Workers& workers, Isa isa, const AdamSpans& spans, Decay decay, const AdamScalars& scalars,
          float prediction, const AdamPlace& place, AdamSums* sums) {
  const int64_t n = check_adam(spans, prediction, place);
  const AdamKernel kernel = kernel_of(isa, spans, decay);
  // One set for each task, added up in their order.
  std::vector<AdamSums> parts(sums == nullptr ? 0 : static_cast<size_t>((n + kAdamGrain - 1) / kAdamGrain));
  workers.ranges(n, kAdamGrain, [&](int64_t begin, int64_t end) {
    AdamSums* part = sums == nullptr ? nullptr : &parts[static_cast<size_t>(begin / kAdamGrain)];
    kernel(range_of(spans, begin, end, prediction, place, part), scalars);
  });
  for (const AdamSums& part : parts) *sums += part;
}

}  // namespace tandem
