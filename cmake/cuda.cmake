# TANDEM_CUDA=AUTO turns CUDA on where nvcc is found; nothing else in the build depends on it.
set(TANDEM_HAVE_CUDA OFF)
# What the kernels are compiled for; for the last of them as PTX too, which later cards compile themselves. A release for
# every card is 80;86;89;90;100;120.
set(TANDEM_CUDA_ARCHITECTURES 80 CACHE STRING "GPU architectures of the kernels")
if(NOT TANDEM_CUDA STREQUAL "OFF" AND NOT TANDEM_SANITIZE)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES OFF)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25.1 does not know that nvcc speaks it
    set(TANDEM_HAVE_CUDA ON)
  elseif(TANDEM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TANDEM_CUDA=ON, but no CUDA compiler (nvcc) was found")
  endif()
endif()
