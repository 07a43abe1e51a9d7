# -Wno-restrict: g++ 12 warns falsely on std::string (its bug 105651).
# One interface target carries the flags that are part of the numeric contract: no contraction (g++ contracts by
# default once FMA is on), no fast-math, no -march=native, denormals kept. tests/house/build_flags_test reads the compile commands.
add_library(tandem_flags INTERFACE)
target_include_directories(tandem_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(tandem_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -ffp-contract=off -fno-fast-math>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-ftz=false;-prec-div=true;-prec-sqrt=true;-Xcompiler=-ffp-contract=off>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror>")
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(CMAKE_CXX_FLAGS_RELEASE "-O3")  # NDEBUG stays off: ASSERT holds in all builds
endif()
if(TANDEM_SANITIZE)
  # -Wno-maybe-uninitialized: false under sanitizers, in std::regex for one (g++'s bug 105562).
  target_compile_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -g1 $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE})
endif()

# tandem_room(NAME DIR): one static library for one room, from every source below its folder.
function(tandem_room name)
  # Relative, so that where the tree lies (in a folder called bench, say) excludes nothing.
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cpp)
  list(FILTER sources EXCLUDE REGEX "^cli/main.cpp$|^pool_tbb.cpp$|^cuda/|(^|/)isa/")
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC tandem_flags fmt::fmt Threads::Threads)
endfunction()
