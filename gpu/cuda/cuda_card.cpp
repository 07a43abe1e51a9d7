#include "gpu/cuda/cuda_card.h"

#include <algorithm>
#include <cstdlib>

#include "gpu/cuda/checks.h"

namespace tandem::gpu::cuda {

namespace {

constexpr const char* kKey = "device.kind";
constexpr const char* kOtherDevice = "\"host\"";
constexpr int kLeastCapability = 80;

/// 13020 -> "13.2".
std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

void check_driver() {
  int driver = 0;
  const cudaError_t status = cudaDriverGetVersion(&driver);
  CHECK(status == cudaSuccess && driver != 0, Status::usage, "no NVIDIA driver", kKey,
        std::string("install one, or ") + kOtherDevice);
  // Within one major version every driver runs every runtime.
  CHECK(driver / 1000 >= CUDART_VERSION / 1000, Status::usage,
        fmt::format("the NVIDIA driver runs CUDA {} at most, this program needs {}.0", version_text(driver),
                    CUDART_VERSION / 1000),
        kKey, "a newer driver, or a build with an older CUDA toolkit");
}

void check_card(int card) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) (void)cudaGetLastError();  // none is an error to it
  CHECK(count > 0, Status::usage, "the NVIDIA driver has no card", kKey, kOtherDevice);
  CHECK(card < count, Status::usage, fmt::format("there is no cuda:{}: the driver has {}", card, count), kKey,
        fmt::format("cuda:0 to cuda:{}", count - 1));
  const int capability = compute_capability(card), major = capability / 10, minor = capability % 10;
  CHECK(capability >= kLeastCapability, Status::usage,
        fmt::format("cuda:{} has compute capability {}.{}, below 8.0", card, major, minor), kKey,
        "a card of 2020 or later (A100, RTX 30 series)");
  CHECK(runs_on(TANDEM_CUDA_ARCHITECTURES, major, minor), Status::usage,
        fmt::format("cuda:{} has compute capability {}.{}, this program's kernels are compiled for {}", card,
                    major, minor, TANDEM_CUDA_ARCHITECTURES),
        kKey, fmt::format("a build with -DTANDEM_CUDA_ARCHITECTURES={}{}", major, minor));
}

}  // namespace

int compute_capability(int card) {
  int major = 0, minor = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, card), kKey);
  CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, card), kKey);
  return 10 * major + minor;
}

bool runs_on(std::string_view architectures, int major, int minor) {
  const int card = 10 * major + minor;
  while (!architectures.empty()) {
    const std::string entry(architectures.substr(0, architectures.find(',')));
    architectures.remove_prefix(std::min(entry.size() + 1, architectures.size()));
    const int built = std::atoi(entry.c_str());
    const bool as_ptx = !entry.ends_with("-real"), as_code = !entry.ends_with("-virtual");
    if (built <= card && (as_ptx || (as_code && built / 10 == major))) return true;
  }
  return false;
}

CardInfo open_card(int card) {
  // Streams that share one of the card's queues wait for each other; a lane that waits for one of them while
  // the other waits for the lane would wait for ever. Read when CUDA starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  check_driver();
  check_card(card);
  CUDA_CHECK(cudaSetDevice(card), kKey);
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, card), kKey);
  char bus_id[32] = "";
  CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, card), kKey);
  return {properties.name, bus_id, properties.totalGlobalMem};
}

size_t free_bytes() {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total), "");
  return free;
}

}  // namespace tandem::gpu::cuda
