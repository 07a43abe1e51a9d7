// The card and its driver, errors and their names.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>

#include "tests/cuda_fake/state.h"

using namespace tandem::cuda_fake;  // NOLINT: the C interface of the runtime is global

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  FAKE_CALL(cudaDriverGetVersion);
  *version = fake.settings.driver;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  FAKE_CALL(cudaGetDeviceCount);
  *count = fake.settings.cards;
  return done(fake.settings.cards == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int card) {
  FAKE_CALL(cudaSetDevice);
  if (card < 0 || card >= fake.settings.cards)
    return done(fault(fmt::format("there is no card {}", card), cudaErrorInvalidDevice));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  FAKE_CALL(cudaDeviceGetAttribute);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = fake.settings.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = fake.settings.minor;
      return cudaSuccess;
    default:
      return done(fault(fmt::format("attribute {} is not implemented here", int{attribute})));
  }
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  FAKE_CALL(cudaGetDeviceProperties);
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "a card that isn't there");
  properties->totalGlobalMem = fake.settings.memory;
  properties->major = fake.settings.major;
  properties->minor = fake.settings.minor;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int card) {
  FAKE_CALL(cudaDeviceGetPCIBusId);
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", card + 1);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  State& fake = state();
  const Lock lock(fake.mutex);
  return fake.sticky != cudaSuccess ? fake.sticky : std::exchange(last_error(), cudaSuccess);
}

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    default:
      return "an error that the fake has no name for";
  }
}

const char* cudaGetErrorString(cudaError_t status) {
  return status == cudaErrorMemoryAllocation ? "out of memory" : "in words";
}

}  // extern "C"
