# Toolchain: Debian's cross compiler for 64-bit Arm; what it builds runs in qemu's user mode. Its libraries are the
# compiler's own: no package of the other architecture is needed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
find_program(AARCH64_CXX aarch64-linux-gnu-g++ REQUIRED)
find_program(AARCH64_QEMU qemu-aarch64 REQUIRED)
set(CMAKE_CXX_COMPILER ${AARCH64_CXX})
set(CMAKE_CROSSCOMPILING_EMULATOR ${AARCH64_QEMU} -L /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
