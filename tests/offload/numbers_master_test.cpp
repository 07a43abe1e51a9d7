// Weights at 1.0 in bf16, whose steps there are 2^-7 above and 2^-8 below: updates far smaller than that are
// kept by the masters and show in the weights once they have added up.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "gpu/backend.h"
#include "tests/offload/engine_rig.h"

namespace tandem {
namespace {

using testing::EngineOptions;
using testing::EngineRig;

EngineOptions all_ones() {
  EngineOptions options;  // untied, so that an embedding row is trained by its own token alone
  options.dtype = DType::bf16;
  options.fill = [](const ParamSpec& spec, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = spec.shape.size() > 1 ? 0.03f * static_cast<float>(i % 7) : 1.0f;
    if (spec.role == Role::embedding) std::fill(out.begin(), out.end(), 1.0f);
  };
  return options;
}

template <class T>
std::vector<T> values(EngineRig& rig, Plane plane, const ParamSpec& spec) {
  const auto bits = rig.plane(plane).at(static_cast<size_t>(spec.block));
  std::vector<T> out(static_cast<size_t>(spec.numel));
  std::memcpy(out.data(), bits.data() + static_cast<size_t>(spec.offset) * sizeof(T), out.size() * sizeof(T));
  return out;
}

void expect_weights_are_rounded_masters(EngineRig& rig, const ParamSpec& spec) {
  const auto masters = values<float>(rig, Plane::master, spec);
  const auto weights = values<uint16_t>(rig, Plane::weights, spec);
  for (size_t i = 0; i < masters.size(); ++i)
    EXPECT_EQ(weights[i], (std::bit_cast<uint32_t>(masters[i]) + 0x8000u) >> 16) << spec.name << " " << i;
}

TEST(NumbersMaster, MovesEveryStepWhereABf16WeightWouldStandStill) {
  EngineOptions options = all_ones();
  options.lr = [](int64_t) { return 6e-4; };
  EngineRig rig(options);
  const ParamSpec& norm = *rig.table().find("model.norm.weight");
  std::vector<float> before(static_cast<size_t>(norm.numel), 1.0f);
  for (int step = 0; step < 8; ++step) {
    rig.run(1);
    const auto now = values<float>(rig, Plane::master, norm);
    for (size_t i = 0; i < now.size(); ++i) EXPECT_NE(now[i], before[i]) << step << " " << i;
    expect_weights_are_rounded_masters(rig, norm);
    before = now;
  }
  const auto weights = values<uint16_t>(rig, Plane::weights, norm);
  EXPECT_TRUE(std::any_of(weights.begin(), weights.end(), [](uint16_t w) { return w != 0x3F80; }))
      << "eight updates of 6e-4 add up to more than half a step below 1";
}

/// lr x decay = 1e-5 on rows whose tokens never come: p (1 - 1e-5)^n, in fp32.
TEST(NumbersMaster, DecaysByStepsThatBf16CannotShow) {
  EngineOptions options = all_ones();
  options.lr = [](int64_t) { return 1e-4; };
  options.adam.weight_decay = 0.1;
  EngineRig rig(options);
  rig.run(10);
  const ParamSpec& embedding = rig.table().params().front();
  const auto masters = values<float>(rig, Plane::master, embedding),
             moments = values<float>(rig, Plane::exp_avg, embedding);
  int64_t untouched = 0;
  for (size_t i = 0; i < masters.size(); ++i) {
    if (moments[i] != 0) continue;
    ++untouched;
    EXPECT_NEAR(masters[i], std::pow(1 - 1e-5, 10), 10 * 0x1p-24) << "a rounding of half an ulp a step";
  }
  EXPECT_GT(untouched, 64);
  expect_weights_are_rounded_masters(rig, embedding);
}

/// Bytes of two to four on the device and, pinned, on the host.
struct Cell {
  Buffer device, host;
  Pin pin;
  Cell(Device& dev, HostMemory& memory)
      : device(dev.allocate(4, "cell")),
        host(memory.allocate(4, "cell")),
        pin(dev.pin({static_cast<std::byte*>(host.raw()), 4})) {}
};

/// Added one after the other in bf16, 1e-3 ends at 0.5.
TEST(NumbersAccumulation, AThousandGradientsOfAThousandthAreOne) {
  const auto workers = make_workers(PoolKind::plain, 1);
  testing::TestMemory memory;
  const auto device = gpu::open("host", {workers.get(), size_t{1} << 20, {}, true});
  const auto stream = device->stream("compute", Purpose::compute);
  const Cell dy(*device, memory), x(*device, memory), dw(*device, memory);
  const auto bf16_of = [](const Buffer& buffer) { return buffer.tensor(DType::bf16, {1, 1}); };
  *bf16_of(dy.host).data<bf16>() = to_bf16(1e-3f);
  *bf16_of(x.host).data<bf16>() = to_bf16(1.0f);
  stream->copy(bf16_of(dy.device), bf16_of(dy.host));
  stream->copy(bf16_of(x.device), bf16_of(x.host));
  const Tensor sum = dw.device.tensor(DType::f32, {1, 1}), landed = dw.host.tensor(DType::f32, {1, 1});
  stream->fill_zero(sum);
  bf16 rounded_sum = to_bf16(0.0f);
  for (int micro = 0; micro < 1000; ++micro) {
    device->ops().linear_backward_weight(*stream, sum, bf16_of(dy.device), bf16_of(x.device));
    rounded_sum = to_bf16(to_float(rounded_sum) + 1e-3f);
  }
  stream->copy(landed, sum);
  stream->record().wait();
  const double one = 1000.0 * static_cast<double>(to_float(to_bf16(1e-3f)));
  EXPECT_NEAR(*landed.data<float>(), one, 1000 * 0x1p-25) << "half an ulp below 1 each";
  EXPECT_NEAR(one, 1.0, 0x1p-8) << "1e-3 itself is rounded to bf16";
  EXPECT_EQ(to_float(rounded_sum), 0.5f);
}

}  // namespace
}  // namespace tandem
