#pragma once
// Evaluation outside training: the loss of a model folder or checkpoint on token files.
#include <cstdint>
#include <string>

#include "core/base/dtype.h"
#include "offload/assembly.h"
#include "offload/memory_plan.h"

namespace tandem {

/// How a model is evaluated. Where its weights are changes no bit of the loss.
struct EvalOptions {
  DType dtype = DType::f32;  ///< what the weights are rounded to
  int64_t batch = 1;         ///< sequences at a time
  bool streamed = false;     ///< weights stream; else they do only where the device has no room for them all
  int window = 1;            ///< where they stream: layers for which the device has room at once
};

struct EvalResult {
  double loss = 0;     ///< mean over the tokens, in nats
  int64_t tokens = 0;  ///< that are targets: all but those that a mask takes out
  int64_t sequences = 0, sequence_length = 0;
  DType dtype = DType::f32;
  bool streamed = false;
  double seconds = 0;
};

/// What evaluate_model() allocates for sequences of this length, with weights that stream or don't as the
/// options say.
MemoryPlan plan_evaluation(const Arch& arch, const ParamTable& table, const EvalOptions& options,
                           int64_t length);

/// Runs the weights over the samples of a range.
/// Error(does_not_fit) before anything is allocated, with what makes it fit.
EvalResult evaluate_model(const Arch& arch, const ParamTable& table, WeightSource& weights,
                          const EvalOptions& options, const SampleSet& set, SampleRange range,
                          const Machine& machine, Device& device);

}  // namespace tandem
