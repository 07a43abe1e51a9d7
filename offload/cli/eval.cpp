// tandem eval: the loss of a model on token files, in nats per token.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "core/io/json.h"
#include "offload/assembly.h"
#include "offload/checkpoint_damage.h"
#include "offload/checkpoint_state.h"
#include "offload/cli/command.h"
#include "offload/cli/options.h"
#include "offload/evaluation.h"
#include "offload/run_folder.h"

namespace tandem {

namespace {

// Where no config says: sequences at a time, and layers in the window of weights that stream.
constexpr int64_t kBatch = 4;
constexpr int kWindow = 3;

/// The dtype that the folder's first tensor is stored in; fp32 for what can't be computed in.
DType stored_dtype(const std::string& folder) {
  const SafetensorsSet set(folder);
  for (const auto& [name, tensor] : set.tensors())
    for (const DType dtype : {DType::bf16, DType::f16})
      if (tensor.entry->dtype == safetensors_name(dtype)) return dtype;
  return DType::f32;
}

std::optional<int64_t> step_of(const std::string& folder) {
  std::error_code ignored;
  const fs::path path = fs::path(folder) / kStateFile;
  if (!fs::exists(path, ignored)) return std::nullopt;
  const json::Document document = json::parse_file(path, {.status = Status::failed});
  return parse_state(json::Node(document)).state.step;
}

/// What device keys mean where no config gives them.
Config::Device default_device() {
  Config::Device device;
  device.kind = device.isa = "auto";
  device.reserve = uint64_t{512} << 20;
  return device;
}

class Eval : public Command {
 public:
  void add_options(CLI::App& app) override {
    add_config_options(app, config_);
    app.get_option("CONFIG")->required(false);
    add_json_option(app, json_);
    app.add_option("--model", model_, "A Hugging Face folder or a checkpoint, in place of CONFIG");
    app.add_option("--checkpoint", checkpoint_,
                   "With CONFIG: a checkpoint's path, or \"latest\" of its run folder");
    app.add_option("--data", data_path_, "A token file, in place of the config's evaluation data");
    app.add_option("--format", format_,
                   "Of --data: auto (the default), llmc, nanogpt, megatron, llmq or bytes");
    app.add_option("--sequence-length", length_, "Tokens of a sequence")
        ->type_name("N")
        ->check(whole_number_from_1());
    app.add_option("--max-tokens", max_tokens_, "Evaluate at most so many tokens, from the front")
        ->type_name("N")
        ->check(whole_number_from_1());
    add_dtype_option(app, dtype_, "that of the run, or of the stored weights");
    add_mmap_option(app, mmap_);
  }

  Status run(const GlobalOptions&) override {
    check_options();
    if (!config_.path.empty()) read_config();
    refuse_damaged_weights(model_);
    const ModelFolder folder(model_, weights_access(mmap_));
    for (const std::string& warning : folder.warnings()) fmt::print(stderr, "note: {}\n", warning);
    const ParamTable table(folder.arch());
    const DataSets data = open_samples(folder.arch());
    const SampleRange range =
        max_tokens_ == 0 ? data.eval_range
                         : first_tokens(data.eval_range, max_tokens_, data.eval_set().sequence_length());
    const Machine machine = find_machine(device_, "device.kind");
    const std::unique_ptr<Device> device = open_device(device_, machine);
    FolderWeights weights(folder);
    how_.dtype = dtype_ ? *dtype_ : stored_dtype(model_);
    show(evaluate_model(folder.arch(), table, weights, how_, data.eval_set(), range, machine, *device),
         machine);
    return Status::ok;
  }

 private:
  /// What the command line alone can tell.
  void check_options() {
    const bool config = !config_.path.empty();
    CHECK(config || !model_.empty(), Status::usage, "no model is named", "command line",
          "eval CONFIG, eval CONFIG --checkpoint latest, or eval --model DIR --data FILE");
    CHECK(!config || model_.empty(), Status::usage, "both CONFIG and --model name a model", "--model",
          "one of the two");
    CHECK(config || !data_path_.empty(), Status::usage, "no evaluation data is named", "command line",
          "--data FILE");
    CHECK(config || checkpoint_.empty(), Status::usage, "--checkpoint goes with CONFIG", "--checkpoint",
          "--model, which takes the path of a checkpoint too");
    CHECK(config || config_.sets.empty(), Status::usage, "--set goes with CONFIG", "--set",
          "eval CONFIG --set ...");
    CHECK(!data_path_.empty() || format_.empty(), Status::usage, "--format goes with --data", "--format",
          "--set data.format=...");
    if (!format_.empty()) data_format_ = token_format(format_, "--format");
  }

  /// What CONFIG and --checkpoint name; options given on the command line win.
  void read_config() {
    Config& config = loaded_.emplace(load_config(config_.path, config_.sets, ConfigUse::evaluate));
    const bool own_data = config.data.eval.size() > 0 || config.data.eval_split > 0;
    CHECK(!data_path_.empty() || own_data, Status::usage, "the config names no evaluation data",
          config.where("data.eval"), "--data FILE, or data.eval or data.eval_split");
    std::vector<std::string_view> paths;
    if (data_path_.empty()) paths.emplace_back(config.data.eval.empty() ? "data.train" : "data.eval");
    if (checkpoint_.empty()) paths.emplace_back("model.path");
    check_names(config, paths);
    device_ = config.device;
    how_.batch = config.micro_batch_size;
    how_.streamed = config.streams_weights();
    how_.window = static_cast<int>(config.offload_param.buffer_count);
    if (!dtype_) dtype_ = config.dtype();
    mmap_ = mmap_ || config.model.mmap;
    model_ = checkpoint_.empty() && config.model.path ? *config.model.path : checkpoint_of(config);
  }

  [[nodiscard]] std::string checkpoint_of(const Config& config) const {
    if (!checkpoint_.empty() && checkpoint_ != "latest") return checkpoint_;
    CHECK(!config.output_dir.empty(), Status::usage, "the config names no run folder",
          config.where("output_dir"), "--checkpoint PATH, or --set output_dir=...");
    const RunFolder folder(config.output_dir);
    for (const int64_t step : folder.saved_steps())
      if (folder.is_complete(step)) return folder.checkpoint(step);
    throw Error(Status::usage, "the run has no complete checkpoint", config.output_dir,
                "--checkpoint PATH, or train first");
  }

  /// The samples, in sequences that the model has positions for.
  DataSets open_samples(const Arch& arch) {
    const bool asked = length_ > 0;
    if (!asked)
      length_ = loaded_ ? loaded_->data.sequence_length : std::min<int64_t>(1024, arch.max_positions);
    CHECK(
        length_ <= arch.max_positions, Status::usage,
        fmt::format("sequences of {} tokens are above the model's {} positions", length_, arch.max_positions),
        asked ? "--sequence-length" : loaded_->where("data.sequence_length"),
        fmt::format("--sequence-length {} or less", arch.max_positions));
    if (!data_path_.empty()) return open_eval_files({data_path_}, data_format_, arch.vocab, length_);
    loaded_->data.sequence_length = length_;
    return open_eval_data(*loaded_, arch);
  }

  void show(const EvalResult& result, const Machine& machine) const {
    const double speed = result.seconds > 0 ? static_cast<double>(result.tokens) / result.seconds : 0.0;
    const std::optional<int64_t> step = step_of(model_);
    if (!json_) {
      fmt::print("loss        {:.5f} nats per token (perplexity {:.3f})\n", result.loss,
                 std::exp(result.loss));
      fmt::print("tokens      {} in {} sequences of {}, {:.0f} tokens/s\n", result.tokens, result.sequences,
                 result.sequence_length, speed);
      fmt::print("model       {}{}, {} on {}{}\n", model_, step ? fmt::format(" (step {})", *step) : "",
                 name_of(result.dtype), machine.device_kind, result.streamed ? ", streamed" : "");
      return;
    }
    const auto finite = [](double x) { return std::isfinite(x) ? json::Value(x) : json::Value(); };
    fmt::print("{}\n", json::dump(json::Object{{"loss", finite(result.loss)},
                                               {"perplexity", finite(std::exp(result.loss))},
                                               {"tokens", result.tokens},
                                               {"sequences", result.sequences},
                                               {"sequence_length", result.sequence_length},
                                               {"dtype", name_of(result.dtype)},
                                               {"device", machine.device_kind},
                                               {"model", model_},
                                               {"step", step ? json::Value(*step) : json::Value()},
                                               {"tokens_per_s", speed}},
                                  2));
  }

  ConfigOptions config_;
  std::string model_, checkpoint_, data_path_, format_;
  int64_t length_ = 0, max_tokens_ = 0;
  EvalOptions how_{.batch = kBatch, .window = kWindow};
  bool json_ = false, mmap_ = false;
  Config::Device device_ = default_device();
  TokenFormat data_format_ = TokenFormat::automatic;
  std::optional<DType> dtype_;
  std::optional<Config> loaded_;  ///< CONFIG, where one is given
};

}  // namespace

std::unique_ptr<Command> make_eval() { return std::make_unique<Eval>(); }

}  // namespace tandem
