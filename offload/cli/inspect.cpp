// tandem inspect: what a checkpoint, model folder, safetensors file or token file holds, and what is wrong.
#include "offload/inspection.h"

#include <fmt/format.h>

#include <cmath>

#include "core/data/token_file.h"
#include "core/io/json.h"
#include "offload/cli/command.h"
#include "offload/cli/options.h"
#include "offload/progress.h"

namespace tandem {

namespace {

/// One line: what, where, what to do.
std::string line_of(const Error& problem) {
  return fmt::format("{} (at {}); try: {}", problem.message(), problem.where(), problem.hint());
}

template <class T>
json::Value or_null(const std::optional<T>& value) {
  return value ? json::Value(*value) : json::Value();
}

/// A sum that JSON can't say (infinite, NaN) is null; `nonfinite` tells why.
json::Value as_json(const TensorFacts& tensor) {
  const bool finite = tensor.sum && std::isfinite(*tensor.sum);
  return json::Object{{"name", tensor.name},
                      {"dtype", tensor.dtype},
                      {"shape", json::Array(tensor.shape.begin(), tensor.shape.end())},
                      {"sum", finite ? json::Value(*tensor.sum) : json::Value()},
                      {"nonfinite", or_null(tensor.nonfinite)}};
}

void add_state(json::Value& out, const RunState& state) {
  out.set("updates", state.train.progress.updates);
  out.set("skipped", state.train.progress.skipped);
  out.set("epoch", state.epoch);
  out.set("lag", state.train.policy.lag);
  out.set("trained_dtype", name_of(state.dtype));
}

json::Value as_json(const Inspection& found, const std::string& format) {
  const auto& weights = found.weights;
  json::Array problems, tensors;
  for (const Error& problem : found.problems) problems.push_back(line_of(problem));
  if (weights)
    for (const TensorFacts& tensor : weights->tensors) tensors.push_back(as_json(tensor));
  json::Value out = json::Object{{"kind", name_of(found.kind)},
                                 {"path", found.path},
                                 {"complete", found.complete()},
                                 {"step", found.state ? json::Value(found.state->step) : json::Value()},
                                 {"parameters", weights ? json::Value(weights->parameters) : json::Value()},
                                 {"dtype", weights ? json::Value(weights->dtype) : json::Value()},
                                 {"model_type", weights ? or_null(weights->model_type) : json::Value()},
                                 {"files", json::Array(found.files.begin(), found.files.end())},
                                 {"bytes", found.bytes}};
  if (found.state) add_state(out, *found.state);
  if (found.kind == InspectedKind::checkpoint) out.set("hashes_match", found.hashes_match);
  if (weights) out.set("tensor_count", weights->tensors_found);
  if (found.tokens) {
    out.set("tokens", found.tokens->tokens);
    out.set("format", format.empty() ? "auto" : format);
    out.set("largest_id", or_null(found.tokens->largest_id));
  }
  out.set("notes", json::Array(found.notes.begin(), found.notes.end()));
  out.set("problems", std::move(problems));
  out.set("tensors", std::move(tensors));
  return out;
}

void print_tensors(const std::vector<TensorFacts>& tensors) {
  size_t width = 4;
  for (const TensorFacts& tensor : tensors) width = std::max(width, printable(tensor.name).size());
  if (!tensors.empty())
    fmt::print("{:<{}}  {:<6} {:<16} {:>14} {:>9}\n", "name", width, "dtype", "shape", "sum", "nonfinite");
  for (const TensorFacts& tensor : tensors)
    fmt::print("{:<{}}  {:<6} {:<16} {:>14} {:>9}\n", printable(tensor.name), width, tensor.dtype,
               shape_text(tensor.shape), tensor.sum ? fmt::format("{:.7g}", *tensor.sum) : "-",
               tensor.nonfinite ? std::to_string(*tensor.nonfinite) : "-");
}

void print(const Inspection& found) {
  fmt::print("{:<11} {}\n", name_of(found.kind), printable(found.path));
  if (found.state)
    fmt::print("step        {} ({} updates, {} skipped), lag {}, trained in {}\n", found.state->step,
               found.state->train.progress.updates, found.state->train.progress.skipped,
               found.state->train.policy.lag, name_of(found.state->dtype));
  if (const auto& weights = found.weights)
    fmt::print("weights     {}{} parameters, {}, {} tensors\n",
               weights->model_type ? *weights->model_type + ", " : "", weights->parameters, weights->dtype,
               weights->tensors_found);
  if (found.tokens)
    fmt::print("tokens      {}{}\n", found.tokens->tokens,
               found.tokens->largest_id ? fmt::format(", the largest is {}", *found.tokens->largest_id) : "");
  fmt::print("files       {}, {}{}\n", found.files.size(), byte_text(found.bytes),
             found.hashes_match ? ", all as they were written" : "");
  if (found.weights) print_tensors(found.weights->tensors);
  for (const std::string& note : found.notes) fmt::print("note        {}\n", note);
  for (const Error& problem : found.problems) fmt::print("problem     {}\n", line_of(problem));
  fmt::print("{}\n", found.complete() ? "complete    no problems found"
                                      : fmt::format("incomplete  {} problem{}", found.problems.size(),
                                                    found.problems.size() == 1 ? "" : "s"));
}

class Inspect : public Command {
 public:
  void add_options(CLI::App& app) override {
    app.add_option(
           "PATH", path_,
           "A checkpoint, a run folder (its newest checkpoint), a Hugging Face folder, a .safetensors "
           "file or a token file")
        ->required();
    app.add_flag("--tensors", tensors_, "Also read all data: the sum of every tensor, the largest token");
    app.add_option("--format", format_, "Of a token file, as data.format; auto where it is not given");
    add_json_option(app, json_);
  }

  Status run(const GlobalOptions&) override {
    InspectOptions options{tensors_, std::nullopt};
    if (!format_.empty()) options.format = token_format(format_, "--format");
    const Inspection found = inspect(path_, options);
    if (json_)
      fmt::print("{}\n", json::dump(as_json(found, format_), 2));
    else
      print(found);
    return found.complete() ? Status::ok : Status::failed;
  }

 private:
  std::string path_, format_;
  bool tensors_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_inspect() { return std::make_unique<Inspect>(); }

}  // namespace tandem
