#pragma once
// How far a model's results are from a golden's, as numbers that a test bounds.
#include <span>
#include <string>
#include <vector>

#include "core/model/params.h"
#include "tests/offload/golden_file.h"

namespace tandem::golden {

/// A parameter's values in the order of the files, from the block's, or back.
std::vector<float> turned(const ParamSpec& spec, std::span<const float> values, bool to_files);
/// The golden's weights, as the block has them.
void fill_stored(const ParamSpec& spec, std::span<float> out);
/// The larger one; NaN if either is.
double worse(double a, double b);

/// |loss - golden| / golden.
double loss_error(const GoldenFile& golden, double loss);

/// The worst row of logits [B*T, vocab], each as L2 norm of the difference over L2 norm of the row: exact for
/// the rows stored whole, for every row sqrt(3) |difference of projections| / norm (a random direction of
/// variance 1/3 sees that much of a difference on average). NaN if any is.
double logits_error(const GoldenFile& golden, std::span<const float> logits);

/// L2 norm of the gradient's difference over the golden's norm. Exact where the golden is whole; otherwise
/// the largest of what its samples, its projections and its norm say. NaN if any is.
double gradient_error(const GoldenFile& golden, const std::string& parameter,
                      std::span<const float> gradient);

/// After the golden's AdamW run: L2 norm of the weights' difference, from the samples, over how far the
/// weights moved.
double final_weight_error(const GoldenFile& golden, const std::string& parameter,
                          std::span<const float> weights);

}  // namespace tandem::golden
