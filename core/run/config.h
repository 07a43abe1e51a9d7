#pragma once
// What the user asked for: plain typed values, complete and checked. core/run/config_fields.cpp holds the one
// list of keys with their defaults, ranges and meanings; docs/config.md is made from it.
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/data/token_format.h"
#include "core/io/json.h"
#include "core/math/state_formats.h"
#include "core/run/loss_scale.h"
#include "core/run/lr_schedule.h"

namespace tandem {

/// A key that was accepted and changes nothing; to be said once at start.
struct IgnoredKey {
  std::string key;    ///< "zero_optimization.overlap_comm"
  std::string where;  ///< FILE:LINE:COL (key)
  std::string note;   ///< why, where there is more to say; else empty
};

struct Config {
  std::string output_dir;  ///< absolute; empty if the config names none (allowed where nothing is written)

  // Sequences: batch = micro_batch_size * accumulation_steps * ranks. All three are always known.
  int64_t train_batch_size = 0, micro_batch_size = 0, accumulation_steps = 0;
  double gradient_clipping = 0;  ///< global L2 norm; 0 = off
  int64_t steps_per_print = 0;

  bool bf16_enabled = false, fp16_enabled = false;  ///< at most one
  LossScaleConfig fp16;                             ///< as given; loss_scaling() is what a run uses

  struct Optimizer {
    enum class Type : uint8_t { adamw, adam };
    Type type = Type::adamw;
    double lr = 0;
    std::array<double, 2> betas = {};
    double eps = 0, weight_decay = 0;
    bool adam_w_mode = true;  ///< decoupled weight decay; false: L2
    std::vector<std::string> no_decay;
  } optimizer;

  /// As given; schedule_of() is what a run uses.
  struct Scheduler {
    ScheduleType type = ScheduleType::constant;
    int64_t warmup_num_steps = 0;
    WarmupType warmup_type = WarmupType::log;
    double warmup_min_lr = 0;
    std::optional<double> warmup_max_lr;     ///< absent: optimizer.lr
    std::optional<int64_t> total_num_steps;  ///< absent: the run's steps
    double cos_min_ratio = 0, warmup_min_ratio = 0;
  } scheduler;

  int64_t zero_stage = 0;

  struct OffloadOptimizer {
    enum class Device : uint8_t { none, cpu };
    enum class Schedule : uint8_t { synchronous, exact, delayed };
    enum class Correction : uint8_t { none, predict };
    Device device = Device::none;
    std::optional<double> ratio;  ///< 0 to 1; absent: the plan's choice, and always where device is none
    bool pin_memory = true;
    Schedule schedule = Schedule::synchronous;  ///< synchronous where device is none
    int64_t warmup_steps = 0;    ///< at lag 0, before delayed and after an overflow or a risen loss
    double staleness_limit = 0;  ///< nats that the loss may rise under delayed; 0 = off
    Correction correction = Correction::predict;
    double prediction = 0;
    MasterFormat masters = MasterFormat::fp32;  ///< fp32 where device is none
    MomentFormat moments = MomentFormat::fp32;  ///< fp32 where device is none
  } offload_optimizer;

  struct OffloadParam {
    enum class Device : uint8_t { none, cpu };
    Device device = Device::none;
    int64_t buffer_count = 0;  ///< blocks in the window of streamed weights
  } offload_param;

  struct Train {
    enum class Order : uint8_t { layer_major, micro_batch_major };
    enum class OnNonfinite : uint8_t { skip, stop };
    Order order = Order::layer_major;
    std::optional<int64_t> steps;  ///< exactly one of steps and epochs
    std::optional<double> epochs;
    uint64_t seed = 0;
    int64_t eval_every = 0, eval_tokens = 0;  ///< 0: only at the end; 0: all
    OnNonfinite on_nonfinite = OnNonfinite::skip;
    int64_t max_skipped_in_a_row = 0;
  } train;

  enum class ActivationPolicy : uint8_t { keep, recompute, recompute_offload, automatic };
  ActivationPolicy activation_policy = ActivationPolicy::automatic;

  struct Model {
    std::optional<std::string> path;  ///< absolute; exactly one of path and config
    json::Value config;               ///< null, an absolute path (string), or config.json's keys (object)
    std::optional<std::string> tokenizer;  ///< absolute; absent: path
    std::vector<std::string> freeze;       ///< globs
    bool mmap = false;                     ///< of path: weights_access()
  } model;

  struct Data {
    std::vector<std::string> train, eval;  ///< absolute
    double eval_split = 0;
    TokenFormat format = TokenFormat::automatic;
    int64_t sequence_length = 0;
    bool shuffle = true;
  } data;

  struct Checkpoint {
    int64_t every = 0, keep = 0;  ///< every 0: only at the end
    bool keep_best = false;       ///< then every evaluation before the end is on a save
    bool states = true;
  } checkpoint;

  struct Trace {
    bool enabled = false;
    int64_t start_step = 0, steps = 0;  ///< start_step from 1
  } trace;

  struct Device {
    std::string kind;                      ///< "auto", "host", "cuda" or "cuda:N"
    std::optional<uint64_t> memory_limit;  ///< bytes; absent: what is free less reserve
    uint64_t reserve = 0;                  ///< bytes
    int64_t threads = 0;                   ///< 0: all that is allowed
    std::string isa;                       ///< "auto", "scalar", "avx2", "avx512" or "neon"
    std::optional<uint64_t> chaos_seed;
  } device;

  std::vector<IgnoredKey> ignored;

  /// The text it came from, with what --set changed.
  json::Document document;

  /// f32, bf16 or f16.
  [[nodiscard]] DType dtype() const;
  [[nodiscard]] bool offloads_optimizer() const {
    return offload_optimizer.device == OffloadOptimizer::Device::cpu;
  }
  [[nodiscard]] bool streams_weights() const { return offload_param.device == OffloadParam::Device::cpu; }
  /// "FILE:LINE:COL (key)" or "--set key", for errors that only later work can see; the nearest section's
  /// place if the key was not given.
  [[nodiscard]] std::string where(std::string_view key) const;
  /// model.config for a reader of architectures: its errors name this file and "model.config.KEY".
  [[nodiscard]] json::Node model_config() const;
};

/// What the config is read for: training also needs output_dir.
enum class ConfigUse : uint8_t { train, evaluate };

/// Reads, completes and checks a config. sets: "KEY=VALUE" of --set, applied in order before any check; VALUE
/// is JSON, or else a string. Throws one ErrorList (status usage) with everything that is wrong, each with
/// its place and a hint; a text that is not JSON is one Error. Files named in it are not looked at.
Config load_config(const std::filesystem::path& path, const std::vector<std::string>& sets = {},
                   ConfigUse use = ConfigUse::train);
/// The same from a text. Paths that are read are taken relative to base_dir; name stands for FILE in errors.
Config config_from_text(std::string_view text, std::string name, const std::filesystem::path& base_dir,
                        const std::vector<std::string>& sets = {}, ConfigUse use = ConfigUse::train);

/// Every value that the run uses, under its key; a config again that gives the same Config from any folder.
json::Value resolved(const Config& config);

struct Difference {
  std::string key, before, after;  ///< values as JSON, or "absent"
};
/// What differs between two configs, key by key, model.config's own keys included.
std::vector<Difference> differences(const Config& before, const Config& after);

/// The schedule of a run of so many steps, nothing left to derive.
ScheduleConfig schedule_of(const Config& config, int64_t run_steps);
/// The fp16 section with fp16; a scale fixed at 1 without.
LossScaleConfig loss_scaling(const Config& config);

/// docs/config.md.
std::string config_page();

}  // namespace tandem
