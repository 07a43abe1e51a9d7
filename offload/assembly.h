#pragma once
// From a config to what a run is made of: the model, the machine, the data, the setup of a step.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/data_loader.h"
#include "core/device/device.h"
#include "core/device/host_limits.h"
#include "core/device/workers.h"
#include "core/io/model_folder.h"
#include "core/model/weight_source.h"
#include "core/run/config.h"
#include "cpu_adam/topology.h"
#include "offload/setup.h"

namespace tandem {

/// What a config names is there: the paths under these keys (model.path, model.config, model.tokenizer,
/// data.train, data.eval), the device and the instruction set. One ErrorList (usage) with everything that is
/// not. What is in the files is checked when they are opened.
void check_names(const Config& config, std::span<const std::string_view> keys);

/// The model that a config names.
struct ModelSource {
  Arch arch;
  std::unique_ptr<ModelFolder> folder;  ///< model.path; null when the weights come from the seed
  std::string config_json;              ///< for checkpoints: as it came, but for a dtype that would be false
  [[nodiscard]] StoredForm form() const { return folder ? folder->stored_form() : StoredForm{}; }
};
ModelSource open_model(const Config& config);

/// Weights out of a model folder, refusing those that are not finite.
class FolderWeights : public WeightSource {
 public:
  explicit FolderWeights(const ModelFolder& folder) : folder_(folder) {}
  void read(const ParamSpec& spec, int64_t first, std::span<float> out) override {
    folder_.read(spec, first, out, NonFinite::refuse);
  }

 private:
  const ModelFolder& folder_;
};

/// The compute threads, host memory and the device that a config asks for. Members end in the reverse order
/// of their making.
struct Machine {
  Topology topology;
  Isa isa = Isa::scalar;
  std::string isa_why;
  std::unique_ptr<Workers> workers;
  std::unique_ptr<HostMemory> host;
  std::string device_kind;  ///< "host"
  std::string device_why;   ///< why that one, where the config left it open
  std::string pci_bus_id;   ///< where the device is; empty for the host
  HostLimits limits;        ///< what this process may still take of the host's memory
  size_t device_limit = 0;  ///< bytes of device memory that may be allocated
  /// On the host device, device memory is memory of the host.
  [[nodiscard]] bool device_shares_host() const { return device_kind == "host"; }
};
/// Threads and limits; the device itself is opened once everything has been checked. where: the place of
/// device.kind, for errors.
Machine find_machine(const Config::Device& device, const std::string& where);
std::unique_ptr<Device> open_device(const Config::Device& device, const Machine& machine);

/// What train and evaluation read.
struct DataSets {
  std::unique_ptr<SampleSet> train, eval;  ///< eval: null when it is a part of train, or there is none
  SampleRange train_range, eval_range;     ///< eval_range.count 0: no evaluation
  [[nodiscard]] const SampleSet& eval_set() const { return eval ? *eval : *train; }
};
DataSets open_data(const Config& config, const Arch& arch);
/// Only what evaluation reads: data.train stays closed where data.eval is given.
DataSets open_eval_data(const Config& config, const Arch& arch);
/// Files named by hand (eval --data) as an evaluation set.
DataSets open_eval_files(const std::vector<std::string>& paths, TokenFormat format, int64_t vocab,
                         int64_t length);
/// Samples of at most so many tokens, at least one.
SampleRange first_tokens(SampleRange range, int64_t tokens, int64_t length);

/// train.steps, or what train.epochs come to.
int64_t run_steps(const Config& config, const DataSets& data);

/// The setup of a run of so many steps; what the config leaves open is settled by what the machine has room
/// for.
TrainSetup make_setup(const Config& config, const Arch& arch, const ParamTable& table, int64_t steps,
                      const Machine& machine);

}  // namespace tandem
