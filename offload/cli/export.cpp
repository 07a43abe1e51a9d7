// tandem export: a model or checkpoint as an ordinary Hugging Face folder.
#include "offload/export.h"

#include <fmt/format.h>

#include "core/io/json.h"
#include "core/io/model_folder.h"
#include "offload/cli/command.h"
#include "offload/cli/options.h"
#include "offload/progress.h"

namespace tandem {

namespace {

class ExportCommand : public Command {
 public:
  void add_options(CLI::App& app) override {
    app.add_option("PATH", options_.path,
                   "A Hugging Face folder, a checkpoint, or a run folder (its newest complete checkpoint)")
        ->required();
    app.add_option("--out", options_.out, "The folder to write: a new one, or one that is empty")
        ->required()
        ->type_name("DIR");
    add_dtype_option(app, options_.dtype, "each tensor's own");
    add_mmap_option(app, mmap_);
    add_json_option(app, json_);
  }

  Status run(const GlobalOptions&) override {
    options_.access = weights_access(mmap_);
    const ExportResult result = export_model(options_);
    for (const std::string& note : result.notes) fmt::print(stderr, "note: {}\n", note);
    const json::Value step = result.step ? json::Value(*result.step) : json::Value();
    if (json_)
      fmt::print("{}\n", json::dump(json::Object{{"out", result.out},
                                                 {"bytes", result.bytes},
                                                 {"tensors", result.tensors},
                                                 {"dtype", result.dtype},
                                                 {"source", result.source},
                                                 {"step", step}},
                                    2));
    else
      fmt::print("exported    {}{}\nto          {}: {} tensors, {}, {}\n", result.source,
                 result.step ? fmt::format(" (step {})", *result.step) : "", result.out, result.tensors,
                 result.dtype, byte_text(result.bytes));
    return Status::ok;
  }

 private:
  ExportOptions options_;
  bool mmap_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_export() { return std::make_unique<ExportCommand>(); }

}  // namespace tandem
