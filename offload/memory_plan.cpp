#include "offload/memory_plan.h"

#include <algorithm>

#include "core/run/arena.h"

namespace tandem {

namespace {

size_t sum(const ScopeBytes& scopes) {
  size_t total = 0;
  for (const auto& [scope, bytes] : scopes) total += bytes;
  return total;
}

bool is_pinned(const std::string& scope) {
  return scope == "slots" || scope == "weights" || scope == "activations" || scope == "batches" ||
         scope == "scalars" || scope == "tables";
}

/// Scopes without bytes are not allocated, so they are not counted.
void drop_empty(ScopeBytes& scopes) {
  std::erase_if(scopes, [](const auto& entry) { return entry.second == 0; });
}

}  // namespace

size_t MemoryPlan::device_bytes() const { return sum(device); }
size_t MemoryPlan::host_bytes() const { return sum(host); }

size_t MemoryPlan::pinned_bytes() const {
  size_t total = 0;
  for (const auto& [scope, bytes] : host) total += is_pinned(scope) ? bytes : 0;
  return total;
}

PlaneBytes plane_elements(const TrainSetup& setup, const ParamTable& table) {
  PlaneBytes planes;
  for (BlockId block = 0; block < table.block_count(); ++block) {
    const bool host = setup.placement.at(static_cast<size_t>(block)) == Placement::host;
    (host ? planes.host_elements : planes.device_elements) += table.block(block).trained;
  }
  return planes;
}

int64_t frozen_piece(const ParamTable& table) {
  constexpr int64_t kMost = int64_t{1} << 24;  // elements: most matrices whole, for the transposed ones' sake
  int64_t largest = 0;
  for (const ParamSpec& spec : table.params())
    if (spec.frozen) largest = std::max(largest, spec.numel);
  return std::min(largest, kMost);
}

size_t staging_bytes(const TrainSetup& setup, const ParamTable& table) {
  constexpr size_t kPiece = 4 << 20;
  size_t most = 0;
  for (BlockId block = 0; block < table.block_count(); ++block) {
    const size_t whole = static_cast<size_t>(table.block(block).trained) * sizeof(float);
    const bool host = setup.placement.at(static_cast<size_t>(block)) == Placement::host;
    most = std::max(most, host ? std::min(whole, kPiece) : whole);
  }
  return std::max(most, static_cast<size_t>(frozen_piece(table)) * (sizeof(float) + size_of(setup.dtype)));
}

bool is_vocab_block(const Arch& arch, const ParamTable& table, BlockId block) {
  return block == 0 || (!arch.tied && block == table.block_count() - 1);
}

WeightPlan plan_weights(const TrainSetup& setup, const ParamTable& table) {
  WeightPlan plan;
  for (BlockId block = 0; block < table.block_count(); ++block) {
    const BlockSpec& spec = table.block(block);
    if (!setup.streams(block)) {
      plan.resident += spec.numel;
      continue;
    }
    const bool vocab = is_vocab_block(setup.arch, table, block);
    int64_t& elements = vocab ? plan.vocab_elements : plan.layer_elements;
    elements = std::max(elements, spec.numel);
    ++(vocab ? plan.vocab_slots : plan.layer_slots);
    plan.frozen += spec.numel - spec.trained;
  }
  plan.layer_slots = std::min(plan.layer_slots, setup.window);
  plan.vocab_slots = std::min(plan.vocab_slots, 1);  // look-up and head are far apart
  return plan;
}

BucketPlan plan_buckets(const TrainSetup& setup, const ParamTable& table) {
  BucketPlan plan;
  int layer_blocks = 0, vocab_uses = 0, all_vocab_uses = 0;
  for (BlockId block = 0; block < table.block_count(); ++block) {
    const bool vocab = is_vocab_block(setup.arch, table, block);
    const BlockSpec& spec = table.block(block);
    int64_t& elements = vocab ? plan.vocab_elements : plan.layer_elements;
    elements = std::max(elements, spec.trained);
    layer_blocks += !vocab && spec.trained > 0 ? 1 : 0;
    vocab_uses = std::max(vocab_uses, vocab ? spec.grad_uses : 0);
    all_vocab_uses += vocab ? spec.grad_uses : 0;
  }
  const bool all_open = setup.groups() > 1;  // accumulators live over the whole step
  plan.layer_buckets = all_open ? layer_blocks : std::min(setup.layer_buckets, layer_blocks);
  plan.vocab_buckets = all_open ? all_vocab_uses : vocab_uses;
  for (BlockId block = 0; setup.dtype != DType::f32 && block < table.block_count(); ++block)
    if (setup.placement.at(static_cast<size_t>(block)) == Placement::host)
      plan.staging_elements =
          std::max(plan.staging_elements, std::min(table.block(block).trained, setup.slice_elements));
  return plan;
}

size_t BucketPlan::bytes(DType dtype) const {
  const auto elements = static_cast<size_t>(layer_elements * layer_buckets + vocab_elements * vocab_buckets);
  return elements * sizeof(float) + static_cast<size_t>(kStagings * staging_elements) * size_of(dtype);
}

std::vector<int64_t> slice_places(const TrainSetup& setup, const ParamTable& table) {
  std::vector<int64_t> places{0};
  for (const BlockSpec& block : table.blocks())
    places.push_back(places.back() + setup.slices_of(block.trained));
  return places;
}

int64_t scalars_per_step(const TrainSetup& setup, const ParamTable& table) {
  return 2 * slice_places(setup, table).back() + setup.micro_batches;
}

size_t offloaded_input_bytes(const TrainSetup& setup, const ParamTable& table) {
  if (setup.keep != Keep::input_offloaded) return 0;
  const Window window{setup.micro_batch, setup.length, setup.group()};
  return static_cast<size_t>(offloaded_inputs(setup.arch, table, window) * setup.tokens_per_micro_batch() *
                             setup.arch.hidden) *
         size_of(setup.dtype);
}

MemoryPlan plan_memory(const TrainSetup& setup, const ParamTable& table) {
  const size_t element = size_of(setup.dtype);
  const PlaneBytes planes = plane_elements(setup, table);
  const auto host = static_cast<size_t>(planes.host_elements),
             device = static_cast<size_t>(planes.device_elements);
  const Window window{setup.micro_batch, setup.length, setup.group()};
  const auto step_tokens = static_cast<size_t>(setup.tokens_per_step());
  const size_t batches = kStepSets * 2 * step_tokens * sizeof(int32_t);
  const size_t scalars = kStepSets * static_cast<size_t>(scalars_per_step(setup, table)) * sizeof(double);
  const size_t tables = Model::table_bytes(setup.arch, setup.length);

  MemoryPlan plan;
  const WeightPlan weights = plan_weights(setup, table);
  plan.device["weights"] = static_cast<size_t>(weights.device_elements()) * element;
  plan.device["gradients"] = plan_buckets(setup, table).bytes(setup.dtype);
  plan.device["activations"] = std::max(model_bytes(setup.arch, setup.dtype, window, setup.keep).total(),
                                        model_eval_bytes(setup.arch, setup.dtype, window).total());
  plan.device["optimizer"] = device * 3 * sizeof(float);
  plan.device["slots"] = device * element * static_cast<size_t>(setup.slots());
  const StateFormat& states = setup.states;
  plan.host["master"] =
      plane_bytes(states, StatePlane::master, planes.host_elements) + host * setup.upper_bytes();
  plan.host["exp_avg"] = plan.host["exp_avg_sq"] =
      plane_bytes(states, StatePlane::moment1, planes.host_elements) +
      plane_bytes(states, StatePlane::scale1, planes.host_elements);
  plan.host["weights"] = static_cast<size_t>(weights.frozen) * element;
  plan.host["slots"] = host * element * static_cast<size_t>(setup.slots());
  plan.host["activations"] = offloaded_input_bytes(setup, table);
  plan.device["batches"] = plan.host["batches"] = batches;
  plan.device["scalars"] = plan.host["scalars"] = scalars;
  plan.device["tables"] = plan.host["tables"] = tables;
  plan.staging = staging_bytes(setup, table);
  drop_empty(plan.device);
  drop_empty(plan.host);
  return plan;
}

}  // namespace tandem
