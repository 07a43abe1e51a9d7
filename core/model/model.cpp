#include "core/model/model.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/model/block.h"
#include "core/model/block_inputs.h"
#include "core/run/scratch.h"

namespace tandem {

namespace {

size_t rounded(int64_t elements, DType dtype) {
  return Arena::rounded(static_cast<size_t>(elements) * size_of(dtype));
}

/// Scratch of the head: the normed input and its gradient, the norm's statistics, the final norm's output,
/// one chunk of logits and of their gradient.
size_t head_bytes(const Arch& arch, DType dtype, int64_t tokens, bool gradients) {
  const int64_t rows = std::min(tokens, head_chunk_rows(arch));
  size_t bytes = rounded(tokens * arch.hidden, dtype) + NormStatistics::bytes(arch.layer_norm, tokens) +
                 rounded(rows * arch.vocab, DType::f32);
  if (gradients) bytes += rounded(tokens * arch.hidden, dtype);
  if (gradients && dtype != DType::f32) bytes += rounded(rows * arch.vocab, dtype);
  return bytes;
}

}  // namespace

int64_t head_chunk_rows(const Arch& arch) {
  constexpr int64_t kLogits = int64_t{1} << 24;  // 64 MiB of fp32
  return std::max<int64_t>(16, kLogits / arch.vocab / 16 * 16);
}

ModelBytes model_bytes(const Arch& arch, DType dtype, const Window& window, Keep keep) {
  const LayerShape shape(arch, dtype, window.batch, window.length);
  const size_t layer = LayerActivations::bytes(shape);
  const bool kept = keep == Keep::all;
  ModelBytes bytes;
  bytes.block_inputs = static_cast<size_t>(BlockInputs::most_in_arena(arch.layers, window.group,
                                                                      keep == Keep::input_offloaded)) *
                       rounded(shape.tokens() * arch.hidden, dtype);
  bytes.kept = kept ? static_cast<size_t>(window.group * arch.layers) * layer : 0;
  bytes.scratch = std::max(LayerGradients::bytes(shape) + (kept ? 0 : layer),
                           head_bytes(arch, dtype, shape.tokens(), true));
  return bytes;
}

int64_t offloaded_inputs(const Arch& arch, const ParamTable& table, const Window& window) {
  return BlockInputs::places({arch.layers, window.group, table});
}

ModelBytes model_eval_bytes(const Arch& arch, DType dtype, const Window& window) {
  const LayerShape shape(arch, dtype, window.batch, window.length);
  ModelBytes bytes;
  bytes.block_inputs = 2 * rounded(shape.tokens() * arch.hidden, dtype);
  bytes.scratch = std::max(LayerActivations::bytes(shape), head_bytes(arch, dtype, shape.tokens(), false));
  return bytes;
}

struct Activations::Parts {
  ArenaTensor scratch;                                // of one phase at a time
  std::optional<BlockInputs> inputs;                  // of layers 0..L-1 and the head
  std::vector<ArenaTensor> gradients;                 // [m]: what runs back through the blocks
  std::vector<std::vector<ArenaTensor>> kept_memory;  // [layer][m], Keep::all only
  std::vector<std::vector<LayerActivations>> kept;    // views into kept_memory
};

Activations::Activations() : parts_(std::make_unique<Parts>()) {}
Activations::~Activations() = default;
Activations::Activations(Activations&&) noexcept = default;
Activations& Activations::operator=(Activations&&) noexcept = default;

class Model::Impl {
 public:
  Impl(const Arch& arch, const ParamTable& table, Device& device, HostMemory& host, DType dtype,
       int64_t length, Stream& stream)
      : arch_(arch), table_(table), device_(device), ops_(device.ops()), dtype_(dtype), length_(length) {
    if (!arch.learned_positions) make_tables(device, host, stream);
  }

  Activations forward(std::span<const Batch> group, int64_t version, Keep keep, ParamSource& source,
                      Arena& arena, Stream& s, ActivationStore* store) {
    ASSERT((keep == Keep::input_offloaded) == (store != nullptr), "a store and a policy that don't agree");
    Activations activations;
    Activations::Parts& parts = *activations.parts_;
    const LayerShape shape = shape_of(group);
    const Window window{shape.batch, shape.length, static_cast<int64_t>(group.size())};
    parts.scratch = bytes(arena, model_bytes(arch_, dtype_, window, keep).scratch);
    parts.inputs.emplace(InputRange(arch_.layers, window.group, table_), shape, arena, s, store);
    BlockInputs& x = *parts.inputs;
    s.range("forward embedding");
    {
      const Lease lease = source.acquire(0, version, Pass::forward, s);
      source.prefetch(1, Pass::forward);
      for (size_t m = 0; m < group.size(); ++m) {
        look_up(x.make(0, m), lease.weights(), group[m], s);
        x.made(0, m);
      }
    }
    for (int64_t layer = 0; layer < arch_.layers; ++layer) {
      const size_t l = static_cast<size_t>(layer);
      const auto block = static_cast<BlockId>(layer + 1);
      s.range(fmt::format("forward layer {}", layer));
      const Lease lease = source.acquire(block, version, Pass::forward, s);
      source.prefetch(block + 1, Pass::forward);
      const LayerParams weights(table_, block, lease.weights());
      if (keep == Keep::all) parts.kept.emplace_back(), parts.kept_memory.emplace_back();
      for (size_t m = 0; m < group.size(); ++m) {
        const Tensor y = x.make(layer + 1, m);
        if (keep == Keep::all) parts.kept_memory[l].push_back(bytes(arena, LayerActivations::bytes(shape)));
        Scratch scratch(device_, s, keep == Keep::all ? parts.kept_memory[l][m] : parts.scratch);
        LayerActivations a(shape, scratch);
        layer_forward(ops_, s, shape.of_layer(arch_, layer), rotary_, weights, a, y, x.get(layer, m));
        x.made(layer + 1, m);
        x.passed(layer, m);
        if (keep == Keep::all) parts.kept[l].push_back(a);
      }
    }
    return activations;
  }

  void backward(std::span<const Batch> group, Activations activations, int64_t version, float grad_scale,
                ParamSource& source, GradSink& sink, Stream& s, Tensor losses) {
    Activations::Parts& parts = *activations.parts_;
    const std::vector<ArenaTensor>& d = parts.gradients;
    head_backward(group, parts, version, grad_scale, source, sink, s, losses);
    layers_backward(shape_of(group), parts, version, source, sink, s);
    if (table_.block(0).trained == 0) return;
    s.range("backward embedding");
    const Tensor grads = sink.open(0, s);
    for (size_t m = 0; m < group.size(); ++m) look_up_backward(grads, d[m], group[m], s);
    sink.close(0, s);
  }

  /// Runs one micro-batch forward and calls head(weight, normed rows' begin, rows) for every chunk.
  template <class Chunk>
  void forward_only(const Batch& batch, int64_t version, ParamSource& source, Arena& arena, Stream& s,
                    Chunk chunk) {
    const LayerShape shape = shape_of({&batch, 1});
    const ArenaTensor memory =
        bytes(arena, model_eval_bytes(arch_, dtype_, {shape.batch, shape.length}).scratch);
    ArenaTensor x = hidden(arena, shape), y = hidden(arena, shape);
    s.range("evaluate embedding");
    {
      const Lease lease = source.acquire(0, version, Pass::evaluate, s);
      source.prefetch(1, Pass::evaluate);
      look_up(x, lease.weights(), batch, s);
    }
    for (int64_t layer = 0; layer < arch_.layers; ++layer) {
      const auto block = static_cast<BlockId>(layer + 1);
      s.range(fmt::format("evaluate layer {}", layer));
      const Lease lease = source.acquire(block, version, Pass::evaluate, s);
      source.prefetch(block + 1, Pass::evaluate);
      Scratch scratch(device_, s, memory);
      LayerActivations a(shape, scratch);
      layer_forward(ops_, s, shape.of_layer(arch_, layer), rotary_,
                    LayerParams(table_, block, lease.weights()), a, y, x);
      std::swap(x, y);
    }
    evaluate_head(shape, x, memory, version, source, s, chunk);
  }

 private:
  [[nodiscard]] LayerShape shape_of(std::span<const Batch> group) const {
    ASSERT(!group.empty(), "a group without micro-batches");
    const LayerShape shape(arch_, dtype_, group[0].tokens.dim(0), group[0].tokens.dim(1));
    ASSERT(shape.length <= length_, "{} tokens in a model built for {}", shape.length, length_);
    return shape;
  }
  [[nodiscard]] ArenaTensor hidden(Arena& arena, const LayerShape& shape) const {
    return arena.take(dtype_, {shape.tokens(), arch_.hidden});
  }
  [[nodiscard]] static ArenaTensor bytes(Arena& arena, size_t count) {
    return arena.take(DType::u8, {static_cast<int64_t>(count)});
  }
  [[nodiscard]] BlockId head_block() const { return static_cast<BlockId>(arch_.layers + 1); }

  void make_tables(Device& device, HostMemory& host, Stream& stream) {
    const int64_t half = arch_.head_dim / 2;
    table_buffer_ = device.allocate(table_bytes(arch_, length_), "tables");
    table_staging_ = host.allocate(table_bytes(arch_, length_), "tables");
    staging_pin_ = device.pin({static_cast<std::byte*>(table_staging_.raw()), table_staging_.bytes()});
    const Tensor host_cos = table_staging_.tensor(DType::f32, {length_, half});
    const Tensor host_sin = table_staging_.tensor(DType::f32, {length_, half}, host_cos.bytes());
    fill_tables(host_cos.data<float>(), host_sin.data<float>());
    rotary_.cos = table_buffer_.tensor(DType::f32, {length_, half});
    rotary_.sin = table_buffer_.tensor(DType::f32, {length_, half}, rotary_.cos.bytes());
    stream.copy(rotary_.cos, host_cos);
    stream.copy(rotary_.sin, host_sin);
  }

  /// Angles in double, rounded once to fp32.
  void fill_tables(float* cosines, float* sines) const {
    const std::vector<double> frequencies = rope_inverse_frequencies(arch_.rope, arch_.head_dim);
    for (int64_t t = 0; t < length_; ++t)
      for (const double frequency : frequencies) {
        const double angle = static_cast<double>(t) * frequency;
        *cosines++ = static_cast<float>(arch_.rope.attention_factor * std::cos(angle));
        *sines++ = static_cast<float>(arch_.rope.attention_factor * std::sin(angle));
      }
  }

  /// The first T rows of the positions' table: one vector that is added to every sequence.
  [[nodiscard]] Tensor positions(Tensor block, const Batch& batch) const {
    return table_.part(0, Role::positions, block).rows(0, batch.tokens.dim(1)).flat();
  }
  /// [N, H] as one row per sequence.
  [[nodiscard]] static Tensor sequences(Tensor t, const Batch& batch) {
    return t.view({batch.tokens.dim(0), t.numel() / batch.tokens.dim(0)});
  }

  void look_up(Tensor y, Tensor block, const Batch& batch, Stream& s) {
    ops_.embedding_forward(s, y, table_.part(0, Role::embedding, block), batch.tokens.flat());
    if (arch_.learned_positions) ops_.add_bias(s, sequences(y, batch), positions(block, batch));
  }
  void look_up_backward(Tensor grads, Tensor d, const Batch& batch, Stream& s) {
    if (const Tensor table = table_.part(0, Role::embedding, grads); !table.empty())
      ops_.embedding_backward(s, table, d, batch.tokens.flat());
    if (!table_.part(0, Role::positions, grads).empty())
      ops_.bias_backward(s, positions(grads, batch), sequences(d, batch));
  }
  /// The accumulator of a use of the block; empty where nothing of the block is trained.
  [[nodiscard]] Tensor open(BlockId block, GradSink& sink, Stream& s) const {
    return table_.block(block).trained > 0 ? sink.open(block, s) : Tensor{};
  }
  void close(BlockId block, GradSink& sink, Stream& s) const {
    if (table_.block(block).trained > 0) sink.close(block, s);
  }

  /// The leases of the head: its own block, and the embedding's where the two are tied.
  struct Head {
    Lease own, tied;
    NormParams norm;
    Tensor weight;  // [V, H]
  };
  [[nodiscard]] NormParams final_norm(Tensor own) const {
    return {table_.part(head_block(), Role::final_norm, own),
            table_.part(head_block(), Role::final_norm_bias, own)};
  }
  /// Of the embedding's block where the two are tied, else of the head's own.
  [[nodiscard]] Tensor head_matrix(Tensor tied, Tensor own) const {
    return arch_.tied ? table_.part(0, Role::embedding, tied) : table_.part(head_block(), Role::head, own);
  }
  Head lease_head(int64_t version, Pass pass, ParamSource& source, Stream& s) {
    Head head;
    if (arch_.tied) head.tied = source.acquire(0, version, pass, s);
    head.own = source.acquire(head_block(), version, pass, s);
    head.norm = final_norm(head.own.weights());
    head.weight = head_matrix(head.tied.weights(), head.own.weights());
    return head;
  }

  void head_backward(std::span<const Batch> group, Activations::Parts& parts, int64_t version,
                     float grad_scale, ParamSource& source, GradSink& sink, Stream& s, Tensor losses) {
    s.range("head");
    const LayerShape shape = shape_of(group);
    Head head = lease_head(version, Pass::backward, source, s);
    if (head_block() > table_.first_trained()) source.prefetch(head_block() - 1, Pass::backward);
    const bool tied_use = table_.block(0).grad_uses == 2;  // the embedding is trained, and the head
    const Tensor tied_grads = tied_use ? sink.open(0, s) : Tensor{};
    const Tensor own_grads = open(head_block(), sink, s);
    const NormParams dnorm = final_norm(own_grads);
    const Tensor dweight = head_matrix(tied_grads, own_grads);
    const int64_t n = shape.tokens(), rows = std::min(n, head_chunk_rows(arch_));
    for (size_t m = 0; m < group.size(); ++m) {
      const Tensor x = parts.inputs->read(arch_.layers, m),
                   d = parts.gradients.emplace_back(parts.inputs->take());
      Scratch scratch(device_, s, parts.scratch);
      const Tensor normed = scratch.take(dtype_, {n, arch_.hidden});
      const NormStatistics stats(arch_.layer_norm, n, scratch);
      const Tensor dnormed = scratch.take(dtype_, {n, arch_.hidden});
      const Tensor logits = scratch.take(DType::f32, {rows, arch_.vocab});
      const Tensor dlogits = dtype_ == DType::f32 ? logits : scratch.take(dtype_, {rows, arch_.vocab});
      norm_forward(ops_, s, normed, stats, x, head.norm, shape.eps);
      for (int64_t begin = 0; begin < n; begin += rows) {
        const int64_t count = std::min(rows, n - begin);
        const Tensor chunk = logits.rows(0, count), dchunk = dlogits.rows(0, count),
                     in = normed.rows(begin, count);
        ops_.linear_forward(s, chunk, in, head.weight);
        ops_.softmax_cross_entropy(s, losses.flat(static_cast<int64_t>(m), 1), dchunk, chunk,
                                   group[m].targets.flat(begin, count), grad_scale);
        ops_.linear_backward_input(s, dnormed.rows(begin, count), dchunk, head.weight);
        if (!dweight.empty()) ops_.linear_backward_weight(s, dweight, dchunk, in);
      }
      norm_backward(ops_, s, d, dnorm, Tensor{}, dnormed, x, head.norm, stats);
      parts.inputs->drop(arch_.layers, m);
    }
    head.own.release();
    head.tied.release();
    close(head_block(), sink, s);
    if (tied_use) sink.close(0, s);
  }

  void layers_backward(const LayerShape& any_layer, Activations::Parts& parts, int64_t version,
                       ParamSource& source, GradSink& sink, Stream& s) {
    const std::vector<ArenaTensor>& d = parts.gradients;
    const bool kept = !parts.kept.empty();
    for (int64_t layer = arch_.layers - 1; layer >= parts.inputs->first(); --layer) {
      const auto block = static_cast<BlockId>(layer + 1);
      const LayerShape shape = any_layer.of_layer(arch_, layer);
      s.range(fmt::format("backward layer {}", layer));
      Lease lease = source.acquire(block, version, Pass::backward, s);
      if (block > table_.first_trained()) source.prefetch(block - 1, Pass::backward);
      const LayerParams weights(table_, block, lease.weights());
      const LayerParams grads(table_, block, open(block, sink, s));
      for (size_t m = 0; m < d.size(); ++m) {
        Scratch scratch(device_, s, parts.scratch);
        const Tensor x = parts.inputs->read(layer, m);
        std::optional<LayerActivations> again;
        if (!kept) {
          again.emplace(shape, scratch);
          layer_recompute(ops_, s, shape, rotary_, weights, *again, x);
        }
        LayerGradients g(shape, scratch);
        layer_backward(ops_, s, shape, rotary_, weights, grads, kept ? parts.kept.back()[m] : *again, g, d[m],
                       x);
        parts.inputs->drop(layer, m);
      }
      lease.release();
      close(block, sink, s);
      if (kept) parts.kept.pop_back(), parts.kept_memory.pop_back();
    }
  }

  template <class Chunk>
  void evaluate_head(const LayerShape& shape, Tensor x, Tensor memory, int64_t version, ParamSource& source,
                     Stream& s, Chunk chunk) {
    s.range("evaluate head");
    const Head head = lease_head(version, Pass::evaluate, source, s);
    const int64_t n = shape.tokens(), rows = std::min(n, head_chunk_rows(arch_));
    Scratch scratch(device_, s, memory);
    const Tensor normed = scratch.take(dtype_, {n, arch_.hidden});
    const NormStatistics stats(arch_.layer_norm, n, scratch);
    const Tensor logits = scratch.take(DType::f32, {rows, arch_.vocab});
    norm_forward(ops_, s, normed, stats, x, head.norm, shape.eps);
    for (int64_t begin = 0; begin < n; begin += rows) {
      const int64_t count = std::min(rows, n - begin);
      const Tensor out = logits.rows(0, count);
      ops_.linear_forward(s, out, normed.rows(begin, count), head.weight);
      chunk(out, begin);
    }
  }

  const Arch arch_;
  const ParamTable& table_;
  Device& device_;

 public:
  Ops& ops_;

 private:
  const DType dtype_;
  const int64_t length_;
  Buffer table_buffer_, table_staging_;
  Pin staging_pin_;
  RotaryTables rotary_;
};

Model::Model(const Arch& arch, const ParamTable& table, Device& device, HostMemory& host, DType dtype,
             int64_t length, Stream& stream)
    : impl_(std::make_unique<Impl>(arch, table, device, host, dtype, length, stream)) {}
Model::~Model() = default;

size_t Model::table_bytes(const Arch& arch, int64_t length) {
  if (arch.learned_positions) return 0;
  return static_cast<size_t>(2 * length * (arch.head_dim / 2)) * sizeof(float);
}

Activations Model::forward(std::span<const Batch> group, int64_t version, Keep keep, ParamSource& source,
                           Arena& arena, Stream& stream, ActivationStore* store) {
  return impl_->forward(group, version, keep, source, arena, stream, store);
}

void Model::backward(std::span<const Batch> group, Activations activations, int64_t version, float grad_scale,
                     ParamSource& source, GradSink& sink, Stream& stream, Tensor losses) {
  impl_->backward(group, std::move(activations), version, grad_scale, source, sink, stream, losses);
}

void Model::evaluate(const Batch& batch, int64_t version, ParamSource& source, Arena& arena, Stream& stream,
                     Tensor loss) {
  impl_->forward_only(batch, version, source, arena, stream, [&](Tensor logits, int64_t begin) {
    impl_->ops_.softmax_cross_entropy(stream, loss, Tensor{}, logits,
                                      batch.targets.flat(begin, logits.dim(0)), 0.0f);
  });
}

void Model::logits(const Batch& batch, int64_t version, ParamSource& source, Arena& arena, Stream& stream,
                   Tensor logits) {
  impl_->forward_only(batch, version, source, arena, stream, [&](Tensor chunk, int64_t begin) {
    stream.copy(logits.rows(begin, chunk.dim(0)), chunk);
  });
}

}  // namespace tandem
