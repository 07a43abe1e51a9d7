#pragma once
// The decoder: forward and backward over micro-batches, block by block, with weights leased from a
// ParamSource and gradients given to a GradSink. Knows nothing of where either lives.
#include <cstdint>
#include <span>
#include <vector>

#include "core/device/device.h"
#include "core/device/ops.h"
#include "core/model/arch.h"
#include "core/model/exchange.h"
#include "core/model/params.h"
#include "core/run/arena.h"

namespace tandem {

/// One micro-batch on the device.
struct Batch {
  Tensor tokens;   // [B, T] i32
  Tensor targets;  // [B, T] i32, -100 = not trained
};

/// What is kept of a layer between forward and backward.
enum class Keep : uint8_t {
  all,              ///< everything that backward reads
  input,            ///< the layer's input only; the rest is computed again, bit for bit, in backward
  input_offloaded,  ///< the same, the inputs being elsewhere until shortly before they are needed
};

/// The shape of a micro-batch and how many run through a block before the next block.
struct Window {
  int64_t batch = 0, length = 0;  ///< B, T
  int64_t group = 1;              ///< micro-batches of one forward or backward call
};

/// Bytes that the model takes from its arena, exact. One closed formula per part; the arena's counter must
/// agree.
struct ModelBytes {
  size_t block_inputs =
      0;               ///< inputs of blocks, of all micro-batches of a group, and the gradients that run back
  size_t kept = 0;     ///< of the layers, with Keep::all
  size_t scratch = 0;  ///< the largest phase: layer forward, layer backward, or a chunk of the head
  [[nodiscard]] size_t total() const { return block_inputs + kept + scratch; }
};
ModelBytes model_bytes(const Arch& arch, DType dtype, const Window& window, Keep keep);
/// Places that an ActivationStore needs, each of B*T*H elements: one for every input that backward reads, but
/// for those that are still on the device when it begins.
int64_t offloaded_inputs(const Arch& arch, const ParamTable& table, const Window& window);
/// The same for evaluation of one micro-batch at a time.
ModelBytes model_eval_bytes(const Arch& arch, DType dtype, const Window& window);
/// Rows of the head that are computed at once: by vocabulary alone, so that about 64 MiB of fp32 logits are
/// held.
int64_t head_chunk_rows(const Arch& arch);

/// Activations between forward and backward of one group; gives its arena memory back on destruction.
class Activations {
 public:
  Activations();
  ~Activations();
  Activations(Activations&&) noexcept;
  Activations& operator=(Activations&&) noexcept;
  Activations(const Activations&) = delete;

 private:
  friend class Model;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

class Model {
 public:
  /// The rotary tables go to the device (scope "tables"), enqueued on the stream from pinned memory that
  /// `host` gives.
  Model(const Arch& arch, const ParamTable& table, Device& device, HostMemory& host, DType dtype,
        int64_t length, Stream& stream);
  ~Model();

  /// Bytes of the rotary tables (none where positions are learned), on the device and (pinned) on the host.
  static size_t table_bytes(const Arch& arch, int64_t length);

  /// Up to the input of the head. The arena must have model_bytes(). store: with Keep::input_offloaded, and
  /// only then; as the arena, it must outlive the backward of the group.
  [[nodiscard]] Activations forward(std::span<const Batch> group, int64_t version, Keep keep,
                                    ParamSource& source, Arena& arena, Stream& stream,
                                    ActivationStore* store = nullptr);
  /// Head and loss, then back to the first block that is trained. losses[m] += the sum of the trained tokens'
  /// losses of micro-batch m; gradients are those of grad_scale times that sum.  losses: [group] f64 on the
  /// device, zeroed by the caller.
  void backward(std::span<const Batch> group, Activations activations, int64_t version, float grad_scale,
                ParamSource& source, GradSink& sink, Stream& stream, Tensor losses);
  /// Forward and loss only, one micro-batch. loss: [1] f64 on the device; += the sum over its trained tokens.
  void evaluate(const Batch& batch, int64_t version, ParamSource& source, Arena& arena, Stream& stream,
                Tensor loss);
  /// Logits of one micro-batch, for comparison with other programs.  logits: [B*T, V] fp32 on the device.
  void logits(const Batch& batch, int64_t version, ParamSource& source, Arena& arena, Stream& stream,
              Tensor logits);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
