#include "tests/cuda_fake/kernels.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstring>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "tests/cuda_fake/state.h"
#include "tests/simt/emulator.h"
#include "tests/simt/every_launch.h"

namespace tandem::cuda_fake {

namespace {

namespace kernels = gpu::TANDEM_SIMT;

/// Reads a launch's arguments: the call of the twin with them, and their bytes.
struct Bound {
  std::function<void()> call;
  std::vector<std::byte> bytes;
};
using Twin = std::function<Bound(void** arguments)>;

/// The arguments are copied at the launch, as CUDA does.
template <class... Parameters, size_t... I>
Twin twin_of(void (*kernel)(Parameters...), std::index_sequence<I...>) {
  return [kernel](void** arguments) {
    Bound bound;
    const std::tuple<Parameters...> values(*static_cast<Parameters*>(arguments[I])...);
    const auto append = [&](const auto& value) {
      const auto* begin = reinterpret_cast<const std::byte*>(&value);
      bound.bytes.insert(bound.bytes.end(), begin, begin + sizeof value);
      bound.bytes.resize((bound.bytes.size() + 7) / 8 * 8);
    };
    (append(std::get<I>(values)), ...);
    bound.call = [kernel, values] { std::apply(kernel, values); };
    return bound;
  };
}

/// "9simt_cuda" for "13simt_emulated": the name that nvcc gives to the same kernel.
std::string name_of(void* function) {
  Dl_info info{};
  ASSERT(dladdr(function, &info) != 0 && info.dli_sname != nullptr && info.dli_saddr == function,
         "a kernel of the emulator has no name: is the program linked with -rdynamic?");
  std::string name = info.dli_sname;
  const std::string ours = "13simt_emulated", theirs = "9simt_cuda";
  for (size_t at = name.find(ours); at != std::string::npos; at = name.find(ours, at))
    name.replace(at, ours.size(), theirs);
  return name;
}

/// Notes kernels instead of launching them.
struct TwinLog {
  std::map<std::string, Twin> twins;
  template <class... Parameters, class... Arguments>
  void operator()(const char*, gpu::Grid, void (*kernel)(Parameters...), Arguments...) {
    void* function = nullptr;
    static_assert(sizeof function == sizeof kernel);
    std::memcpy(&function, &kernel, sizeof kernel);
    twins.emplace(name_of(function), twin_of(kernel, std::index_sequence_for<Parameters...>()));
  }
};

const std::map<std::string, Twin>& twins() {
  static const std::map<std::string, Twin> all = [] {
    TwinLog on;
    for (const DType act : {DType::f32, DType::bf16, DType::f16}) {
      simt::launch_each(on, act, 8, 64, 64);
      kernels::launch_sum_of_squares(on, nullptr, nullptr, act, 512, nullptr);
    }
    return on.twins;
  }();
  return all;
}

/// The live buffers that words of the arguments point into.
std::map<const std::byte*, std::shared_ptr<const gpu::Mapping>> buffers_of(
    const std::vector<std::byte>& bytes) {
  const auto& buffers = state().buffers;
  std::map<const std::byte*, std::shared_ptr<const gpu::Mapping>> found;
  for (size_t at = 0; at < bytes.size(); at += sizeof(void*)) {
    const std::byte* word = nullptr;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    const auto after = buffers.upper_bound(word);
    if (after == buffers.begin()) continue;
    const auto buffer = std::prev(after);
    if (word < buffer->first + buffer->second->bytes()) found.insert(*buffer);
  }
  return found;
}

std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

BoundKernel bind(uint64_t seed, const std::string& name, dim3 grid, dim3 block, void** arguments) {
  const auto twin = twins().find(name);
  if (twin == twins().end() || grid.y * grid.z * block.y * block.z != 1) return {};
  Bound bound = twin->second(arguments);
  BoundKernel kernel;
  simt::Launch launch{
      .kernel = readable(name), .grid = {grid.x, static_cast<int>(block.x)}, .memory = {}, .seed = seed};
  const auto buffers = buffers_of(bound.bytes);
  for (const auto& [face, mapping] : buffers) {
    launch.memory.push_back({"a buffer", face, mapping->bytes(), true});
    kernel.uses.push_back({face, mapping->bytes()});
  }
  kernel.run = [launch = std::move(launch), call = std::move(bound.call), buffers] {
    static simt::Emulator emulator;  // one launch at a time: the fake's lock is held
    const OpenMemory open;
    try {
      emulator.run(launch, call);
    } catch (const simt::Fault& found) {
      (void)fault(found.what());
    }
  };
  return kernel;
}

}  // namespace

void run_kernels_in_the_emulator(uint64_t seed) {
  run_kernels_by([seed](const std::string& name, dim3 grid, dim3 block, void** arguments) {
    return bind(seed, name, grid, block, arguments);
  });
}

std::vector<std::string> kernels_with_twins() {
  std::vector<std::string> names;
  for (const auto& [name, twin] : twins()) names.push_back(name);
  return names;
}

std::vector<std::string> registered_kernels() {
  const Lock lock(state().mutex);
  std::vector<std::string> names;
  for (const auto& [host, name] : state().kernels) names.push_back(name);
  return names;
}

}  // namespace tandem::cuda_fake
