#include "tests/offload/parity_helpers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "tests/offload/golden_weights.h"

namespace tandem::golden {

namespace {

double projection(int which, std::span<const float> values) {
  const uint64_t stream = fnv1a("projection." + std::to_string(which));
  double sum = 0;
  for (uint64_t i = 0; i < values.size(); ++i) sum += double{values[i]} * double{uniform(stream, i)};
  return sum;
}

double norm(std::span<const float> values) {
  return std::sqrt(std::accumulate(values.begin(), values.end(), 0.0,
                                   [](double sum, float x) { return sum + double{x} * double{x}; }));
}

/// L2 norm of values - golden.
double distance(std::span<const float> values, std::span<const double> golden) {
  if (values.size() != golden.size()) throw std::runtime_error("golden: another number of elements");
  double sum = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double difference = double{values[i]} - golden[i];
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

/// L2 norm of values - golden over all elements, estimated from the golden's samples "PREFIX.index" and
/// "PREFIX.sample".
double sampled_distance(const GoldenFile& golden, const std::string& prefix, std::span<const float> values) {
  const std::vector<double>& index = golden.array(prefix + ".index");
  std::vector<float> sampled;
  for (const double i : index) {
    if (i >= static_cast<double>(values.size()))
      throw std::runtime_error("golden: fewer elements than " + prefix);
    sampled.push_back(values[static_cast<size_t>(i)]);
  }
  return distance(sampled, golden.array(prefix + ".sample")) *
         std::sqrt(static_cast<double>(values.size()) / static_cast<double>(index.size()));
}

}  // namespace

std::vector<float> turned(const ParamSpec& spec, std::span<const float> values, bool to_files) {
  std::vector<float> result(values.begin(), values.end());
  if (!spec.transposed) return result;
  const auto outs = static_cast<size_t>(spec.shape[0]), ins = static_cast<size_t>(spec.shape[1]);
  for (size_t o = 0; o < outs; ++o)
    for (size_t i = 0; i < ins; ++i)
      (to_files ? result[i * outs + o] : result[o * ins + i]) =
          to_files ? values[o * ins + i] : values[i * outs + o];
  return result;
}

void fill_stored(const ParamSpec& spec, std::span<float> out) {
  fill_weight(spec.name, static_cast<int>(spec.shape.size()), out);
  std::ranges::copy(turned(spec, out, false), out.begin());
}

double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

double loss_error(const GoldenFile& golden, double loss) {
  return std::abs(loss - golden.scalar("loss")) / golden.scalar("loss");
}

double logits_error(const GoldenFile& golden, std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(golden.integer("vocab"));
  const std::vector<double>& norms = golden.array("logits.norm");  // [B*T]
  if (logits.size() != norms.size() * vocab) throw std::runtime_error("golden: another number of logits");
  double worst = 0;
  for (size_t r = 0; r < norms.size(); ++r) {
    const double off = projection(0, logits.subspan(r * vocab, vocab)) - golden.array("logits.projection")[r];
    worst = worse(worst, std::sqrt(3.0) * std::abs(off) / norms[r]);
  }
  const std::vector<double>& index = golden.array("logits.row_index");
  const std::span<const double> rows(golden.array("logits.rows"));  // [stored rows, vocab]
  for (size_t i = 0; i < index.size(); ++i) {
    const auto r = static_cast<size_t>(index[i]);
    worst =
        worse(worst, distance(logits.subspan(r * vocab, vocab), rows.subspan(i * vocab, vocab)) / norms[r]);
  }
  return worst;
}

double gradient_error(const GoldenFile& golden, const std::string& parameter,
                      std::span<const float> gradient) {
  const std::string prefix = "grad." + parameter;
  const double golden_norm = golden.scalar(prefix + ".norm");
  if (golden.has_array(prefix + ".full"))
    return distance(gradient, golden.array(prefix + ".full")) / golden_norm;
  double off = worse(sampled_distance(golden, prefix, gradient), std::abs(norm(gradient) - golden_norm));
  const std::vector<double>& projections = golden.array(prefix + ".projection");
  for (size_t j = 0; j < projections.size(); ++j)
    off = worse(off, std::sqrt(3.0) * std::abs(projection(static_cast<int>(j), gradient) - projections[j]));
  return off / golden_norm;
}

double final_weight_error(const GoldenFile& golden, const std::string& parameter,
                          std::span<const float> weights) {
  const std::string prefix = "final." + parameter;
  return sampled_distance(golden, prefix, weights) / golden.scalar(prefix + ".moved");
}

}  // namespace tandem::golden
