# Kernels with one planted fault each: all that the emulated ops consist of, compiled once more with one text of one
# file of gpu/kernels replaced, in a namespace of its own. simt_mutant_test.cpp expects that the op's cases notice each.

set(simt_mutant_rows "")
set(simt_mutant_declarations "")

# simt_mutant(NAME OP FILE FROM TO): FROM must stand in gpu/kernels/FILE once.
function(simt_mutant name op file from to)
  set(source ${PROJECT_SOURCE_DIR}/gpu/kernels/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} text)
  string(FIND "${text}" "${from}" first)
  string(FIND "${text}" "${from}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "mutant ${name}: \"${from}\" does not stand in ${source} once: change it with the kernel")
  endif()
  string(REPLACE "${from}" "${to}" text "${text}")
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/mutants/${name})
  file(CONFIGURE OUTPUT ${folder}/gpu/kernels/${file} CONTENT "${text}" @ONLY)
  add_library(mutant_${name} OBJECT simt/emulated_ops.cpp)
  target_include_directories(mutant_${name} BEFORE PRIVATE ${folder})
  target_compile_definitions(mutant_${name} PRIVATE TANDEM_SIMT=mutant_${name})
  target_compile_options(mutant_${name} PRIVATE -O0 -w)  # a fault may leave a name unused
  target_link_libraries(mutant_${name} PRIVATE tandem_core)
  target_link_libraries(test_simt PRIVATE mutant_${name})
  string(APPEND simt_mutant_declarations "namespace mutant_${name} {\nstd::unique_ptr<Ops> make_ops(const EmulatorSettings&);\n}\n")
  string(APPEND simt_mutant_rows "    {\"${name}\", \"${op}\", mutant_${name}::make_ops},\n")
  set(simt_mutant_declarations "${simt_mutant_declarations}" PARENT_SCOPE)
  set(simt_mutant_rows "${simt_mutant_rows}" PARENT_SCOPE)
endfunction()

simt_mutant(tail_read_whole rms_norm_forward pack.cuh "wide && left >= kPack" "wide")
simt_mutant(row_one_too_long add pack.cuh "left = n - i" "left = n - i + 1")
simt_mutant(unused_elements_counted layer_norm_forward pack.cuh "k < part.count ? pack.x[k] : 0.0f" "pack.x[k]")
simt_mutant(lane_32 layer_norm_backward reduce.cuh "flip < width" "flip <= width")
simt_mutant(half_a_warp_added rms_norm_forward reduce.cuh "flip < width" "flip < width / 2")
simt_mutant(first_warp_only rms_norm_backward reduce.cuh "lane() < threads() / kWarp ? static_cast<T>" "lane() < 1 ? static_cast<T>")
simt_mutant(rows_past_the_end bias_backward column_sums.cuh
  "(chunk + 1) * kTileRows < rows ? (chunk + 1) * kTileRows : rows" "(chunk + 1) * kTileRows")
simt_mutant(last_warp_forgotten bias_backward column_sums.cuh "w < kTileWarps" "w < kTileWarps - 1")
simt_mutant(column_of_the_next_tile rms_norm_backward column_sums.cuh "tile + thread() >= width" "tile + thread() > width")
simt_mutant(angle_of_the_head rope rope.cuh "head / heads % length" "head % length")
simt_mutant(leaf_one_too_long sum_of_squares squares.cuh "begin + kReduceLeaf : n" "begin + kReduceLeaf + 1 : n")
simt_mutant(nodes_past_the_end sum_of_squares squares.cuh "first + k < count" "first + k <= count")
simt_mutant(tokens_of_the_first_warp embedding_backward embedding.cuh "begin + w * kWarp + lowest_bit(left)"
  "begin + lowest_bit(left)")
simt_mutant(two_owners_of_a_token embedding_backward embedding.cuh "n < block()" "n + 1 < block()")
simt_mutant(maximum_of_the_pack_only softmax_cross_entropy loss.cuh "own_sum = own_sum * expf(own_max - most)" "own_sum = 0")
simt_mutant(target_of_the_pack softmax_cross_entropy loss.cuh "i + k == target" "k == target")
simt_mutant(last_loss_forgotten softmax_cross_entropy loss.cuh "left < threads() ? left : threads()" "left < threads() ? left - 1 : threads()")
simt_mutant(prediction_from_the_new_weight adam adam.cuh "p.x[k], before, pass.prediction" "p.x[k], p.x[k], pass.prediction")

string(CONFIGURE [[#pragma once
// Written by tests/simt/mutants.cmake.
#include "tests/simt/emulated_ops.h"

namespace tandem::simt {

@simt_mutant_declarations@
struct SourceMutant {
  const char *name, *op;
  std::unique_ptr<Ops> (*make_ops)(const EmulatorSettings&);
};
constexpr SourceMutant kSourceMutants[] = {
@simt_mutant_rows@};

}  // namespace tandem::simt
]] simt_mutants @ONLY)
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/mutants/source_mutants.h CONTENT "${simt_mutants}" @ONLY)
target_include_directories(test_simt PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/mutants)
