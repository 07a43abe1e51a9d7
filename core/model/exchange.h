#pragma once
// How a model meets whoever keeps its weights and gradients.
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/tensor.h"
#include "core/device/device.h"
#include "core/model/params.h"

namespace tandem {

class ParamSource;

/// The right to read one block's weights of one version on one stream, until it is released or destroyed.
class Lease {
 public:
  Lease() = default;
  Lease(ParamSource& source, BlockId block, Pass pass, Stream& stream, Tensor weights)
      : source_(&source), block_(block), pass_(pass), stream_(&stream), weights_(weights) {}
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();
  /// Ends the lease: the weights may be overwritten once what the stream holds so far has passed.
  void release();
  /// [numel of the block] flat, in the training dtype.
  [[nodiscard]] Tensor weights() const { return weights_; }

 private:
  ParamSource* source_ = nullptr;
  BlockId block_ = 0;
  Pass pass_ = Pass::forward;
  Stream* stream_ = nullptr;
  Tensor weights_;
};

/// Where weights come from.
class ParamSource {
 public:
  virtual ~ParamSource() = default;
  /// The block's weights of exactly this version (asserted); the stream waits until they are there.
  [[nodiscard]] virtual Lease acquire(BlockId block, int64_t version, Pass pass, Stream& stream) = 0;
  /// A hint that the pass comes to this block next; weights that are resident ignore it.
  virtual void prefetch(BlockId /*block*/, Pass /*pass*/) {}

 private:
  friend class Lease;
  virtual void released(BlockId block, Pass pass, Stream& stream) = 0;
};

/// Where gradients go. Open and close once per use of a block and pass over it.
class GradSink {
 public:
  virtual ~GradSink() = default;
  /// The fp32 accumulator of this use, [trained elements of the block] flat: zero the first time, then as the
  /// last close left it. The block has trained elements.
  [[nodiscard]] virtual Tensor open(BlockId block, Stream& stream) = 0;
  /// Everything of this use and pass has been added. At the last use of the last pass the uses are added in
  /// their order of arrival and rounded to the training dtype once.
  virtual void close(BlockId block, Stream& stream) = 0;
};

/// Where inputs of layers wait for backward when they don't stay on the device. Its places are numbered from
/// 0; forward sends to each of them once, then backward fetches once from each. `name` says in traces what it
/// is.
class ActivationStore {
 public:
  virtual ~ActivationStore() = default;
  /// Copies x to the place, as the stream's work so far leaves it. Once the fence has passed nothing reads x.
  [[nodiscard]] virtual Fence send(int64_t place, std::string_view name, Tensor x, Stream& stream) = 0;
  /// Copies the place back to x, which nobody uses once the stream's work so far has passed. x is there once
  /// the fence has passed.
  [[nodiscard]] virtual Fence fetch(int64_t place, std::string_view name, Tensor x, Stream& stream) = 0;
};

}  // namespace tandem
