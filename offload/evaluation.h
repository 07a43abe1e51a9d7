#pragma once
// Evaluation outside training: the loss of a model folder or checkpoint on token files.
#include <cstdint>
#include <string>

#include "core/base/dtype.h"
#include "offload/assembly.h"

namespace tandem {

struct EvalResult {
  double loss = 0;     ///< mean over the tokens, in nats
  int64_t tokens = 0;  ///< that are targets: all but those that a mask takes out
  int64_t sequences = 0, sequence_length = 0;
  DType dtype = DType::f32;
  double seconds = 0;
};

/// Runs the weights, rounded to dtype, over the samples of a range, `batch` sequences at a time.
/// Error(does_not_fit) before anything is allocated, with what makes it fit.
EvalResult evaluate_model(const Arch& arch, const ParamTable& table, WeightSource& weights, DType dtype,
                          const SampleSet& set, SampleRange range, int64_t batch, const Machine& machine,
                          Device& device);

}  // namespace tandem
