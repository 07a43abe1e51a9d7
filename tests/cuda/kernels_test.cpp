// Kernels that nvcc built, launched through gpu/cuda/launch.h on the CUDA device: the bits of the emulator's
// direct run.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "gpu/cuda/launch.h"
#include "tests/cuda/cuda_rig.h"
#include "tests/cuda_fake/kernels.h"
#include "tests/simt/emulated_ops.h"

namespace tandem::gpu::cuda {
namespace {

/// Kernels that were written for the emulator as well; others come with their own way to run.
TEST(FakeCudaKernels, EachThatNvccBuiltHasATwin) {
  const std::vector<std::string> twins = cuda_fake::kernels_with_twins();
  const std::vector<std::string> registered = cuda_fake::registered_kernels();
  EXPECT_GE(registered.size(), 80u);
  for (const std::string& name : registered)
    EXPECT_TRUE(std::ranges::find(twins, name) != twins.end()) << name;
  EXPECT_EQ(twins.size(), registered.size());
}

/// A tensor in plain memory and its copy on the device.
struct Twins {
  Twins(CudaDevice& device, DType dtype, std::initializer_list<int64_t> shape, uint64_t seed) {
    for (const int64_t n : shape) numel *= n;
    bytes.resize(static_cast<size_t>(numel) * size_of(dtype));
    landed.resize(bytes.size());
    pin = device.pin(landed);
    plain = Tensor(bytes.data(), dtype, shape);
    buffer = device.allocate(bytes.size(), "operands");
    card = buffer.tensor(dtype, shape);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < numel; ++i) put(i, normal(random));
  }
  void put(int64_t i, float x) const {
    if (plain.dtype() == DType::f32) plain.data<float>()[i] = x;
    if (plain.dtype() == DType::bf16) plain.data<bf16>()[i] = round_to<bf16>(x);
    if (plain.dtype() == DType::f16) plain.data<f16>()[i] = round_to<f16>(x);
    if (plain.dtype() == DType::f64) plain.data<double>()[i] = static_cast<double>(x);
    if (plain.dtype() == DType::i32) plain.data<int32_t>()[i] = static_cast<int32_t>(std::abs(x) * 3) % 5;
  }
  /// The same bytes on the card.
  void upload(Stream& stream) {
    landed = bytes;
    stream.copy(card, host());
    stream.record().wait();
  }
  void download(Stream& stream) {
    stream.copy(host(), card);
    stream.record().wait();
  }
  [[nodiscard]] Tensor host() { return {landed.data(), plain.dtype(), plain.shape()}; }

  int64_t numel = 1;
  std::vector<std::byte> bytes, landed;
  Pin pin;
  Buffer buffer;
  Tensor plain, card;
};

/// A device with a stream whose kernels run in the emulator, and the emulator itself.
struct Scene : Rig {
  explicit Scene(uint64_t seed) : Rig(seed) { cuda_fake::run_kernels_in_the_emulator(seed); }
  std::unique_ptr<Stream> stream = device.stream("compute", Purpose::compute, 0);
  std::unique_ptr<Ops> direct = tandem::simt::simt_emulated::make_ops({.seed = 99});

  Twins tensor(DType dtype, std::initializer_list<int64_t> shape) {
    return {device, dtype, shape, ++tensors_};
  }
  /// Both sides have run, one in plain memory; the outputs must be alike.
  template <class Launch, class Direct>
  void compare(const std::string& what, std::vector<Twins*> inputs, std::vector<Twins*> outputs,
               const Launch& launch, const Direct& run) {
    for (Twins* twins : inputs) twins->upload(*stream);
    for (Twins* twins : outputs) twins->upload(*stream);
    const std::vector<std::byte> before = outputs.front()->bytes;
    device.launched(*stream, launch(device.handle(*stream)), what);
    run(*direct, *stream);
    for (Twins* twins : outputs) {
      twins->download(*stream);
      EXPECT_TRUE(twins->landed == twins->bytes) << what;
    }
    EXPECT_FALSE(outputs.front()->bytes == before) << what << " did nothing";
    ++compared;
  }
  int compared = 0;

 private:
  uint64_t tensors_ = 0;
};

constexpr DType kActs[] = {DType::f32, DType::bf16, DType::f16};
constexpr int64_t kRows = 5, kWidth = 72;

TEST(FakeCudaKernels, LaunchedOnTheDeviceGiveTheBitsOfTheEmulator) {
  for (const DType act : kActs) {
    Scene scene(static_cast<uint64_t>(act));
    Twins x = scene.tensor(act, {kRows, kWidth}), y = scene.tensor(act, {kRows, kWidth});
    Twins dy = scene.tensor(act, {kRows, kWidth}), w = scene.tensor(act, {kWidth});
    Twins rstd = scene.tensor(DType::f32, {kRows}), dw = scene.tensor(DType::f32, {kWidth});
    Twins tokens = scene.tensor(DType::i32, {kRows}), dtable = scene.tensor(DType::f32, {5, kWidth});
    Twins sums = scene.tensor(DType::f64, {2});
    void* const scratch = scene.device.workspace(*scene.stream, 1 << 12);
    const int64_t n = kRows * kWidth;
    scene.compare(
        "embedding_backward", {&dy, &tokens}, {&dtable},
        [&](cudaStream_t on) {
          return embedding_backward(on, dtable.card.data<float>(), dy.card.raw(), tokens.card.data<int32_t>(),
                                    act, kRows, kWidth);
        },
        [&](Ops& ops, Stream& on) { ops.embedding_backward(on, dtable.plain, dy.plain, tokens.plain); });
    scene.compare(
        "rms_norm_forward", {&x, &w}, {&y, &rstd},
        [&](cudaStream_t on) {
          return rms_norm_forward(on, y.card.raw(), rstd.card.data<float>(), x.card.raw(), w.card.raw(), act,
                                  kRows, kWidth, 1e-5f);
        },
        [&](Ops& ops, Stream& on) {
          ops.rms_norm_forward(on, y.plain, rstd.plain, x.plain, w.plain, 1e-5f);
        });
    scene.compare(
        "rms_norm_backward", {&dy, &x, &w, &rstd}, {&y, &dw},
        [&](cudaStream_t on) {
          return rms_norm_backward(on, y.card.raw(), dw.card.data<float>(), nullptr, dy.card.raw(),
                                   x.card.raw(), w.card.raw(), rstd.card.data<float>(), act, kRows, kWidth,
                                   scratch);
        },
        [&](Ops& ops, Stream& on) {
          ops.rms_norm_backward(on, y.plain, dw.plain, {}, dy.plain, x.plain, w.plain, rstd.plain);
        });
    scene.compare(
        "swiglu_forward", {&x, &dy}, {&y},
        [&](cudaStream_t on) {
          return swiglu_forward(on, y.card.raw(), x.card.raw(), dy.card.raw(), act, n);
        },
        [&](Ops& ops, Stream& on) { ops.swiglu_forward(on, y.plain, x.plain, dy.plain); });
    scene.compare(
        "sum_of_squares", {&x}, {&sums},
        [&](cudaStream_t on) {
          return sum_of_squares(on, sums.card.data<double>(), x.card.raw(), act, n, scratch);
        },
        [&](Ops& ops, Stream& on) { ops.sum_of_squares(on, sums.plain, x.plain); });
    EXPECT_EQ(scene.compared, 5);
  }
}

TEST(FakeCudaKernels, AdamOfEveryTypeGivesTheBitsOfTheEmulator) {
  const AdamScalars scalars = adam_scalars({.weight_decay = 0.1}, 1e-3, 3, 0.5, 2);
  for (const DType weight : kActs)
    for (const Decay decay : {Decay::none, Decay::l2, Decay::decoupled}) {
      Scene scene(7);
      Twins master = scene.tensor(DType::f32, {100}), m = scene.tensor(DType::f32, {100});
      Twins v = scene.tensor(DType::f32, {100}), out = scene.tensor(weight, {100});
      Twins grad = scene.tensor(weight, {100});
      for (int64_t i = 0; i < v.numel; ++i) v.put(i, std::abs(v.plain.data<float>()[i]));
      scene.compare(
          "adam", {&grad}, {&master, &m, &v, &out},
          [&](cudaStream_t on) {
            return adam(on, out.card.raw(), weight, grad.card.raw(), weight, master.card.data<float>(),
                        m.card.data<float>(), v.card.data<float>(), 100, scalars, decay, 0);
          },
          [&](Ops& ops, Stream& on) {
            ops.adam(on, {master.plain, m.plain, v.plain, out.plain, grad.plain}, decay, scalars, {});
          });
    }
}

/// What a card would do in silence.
TEST(FakeCudaKernels, FaultsOfKernelsAreFound) {
  Scene scene(1);
  const Buffer buffer = scene.device.allocate(64, "operands");
  const cudaStream_t on = scene.device.handle(*scene.stream);
  const auto fault = [&] {
    EXPECT_EQ(cudaStreamSynchronize(on), cudaSuccess);
    const std::vector<std::string> faults = cuda_fake::faults();
    cuda_fake::clear_faults();
    return faults.empty() ? "none" : faults.front();
  };
  EXPECT_EQ(add(on, buffer.raw(), buffer.raw(), buffer.raw(), DType::f32, 16), cudaSuccess);
  EXPECT_EQ(fault(), "none");
  EXPECT_EQ(add(on, buffer.raw(), buffer.raw(), buffer.raw(), DType::f32, 17), cudaSuccess);
  EXPECT_TRUE(contains(fault(), "add"));
  alignas(16) float pageable[4] = {};
  EXPECT_EQ(add(on, buffer.raw(), buffer.raw(), pageable, DType::f32, 4), cudaSuccess);
  EXPECT_TRUE(contains(fault(), "reads"));
  EXPECT_NE(add(nullptr, buffer.raw(), buffer.raw(), buffer.raw(), DType::f32, 16), cudaSuccess);
  EXPECT_TRUE(contains(fault(), "default stream"));
}

}  // namespace
}  // namespace tandem::gpu::cuda
