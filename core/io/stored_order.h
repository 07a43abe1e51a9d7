#pragma once
// Parameters that model files hold as [in, out] (ParamSpec::transposed) between the files' order and the
// block's, which is [out, in].
#include <functional>
#include <span>
#include <vector>

#include "core/model/params.h"

namespace tandem {

/// The parameter's shape in model files, as safetensors has shapes.
std::vector<uint64_t> file_shape(const ParamSpec& spec);

/// Fills out with elements of a stored tensor from `first` on, in the file's order.
using ReadStored = std::function<void(uint64_t first, std::span<std::byte> out)>;

/// Fills out with a parameter's elements from `first` on in the block's order, `element` bytes each. A
/// transposed parameter is read whole, in chunks of about 4 MiB; every other straight through.
void read_in_block_order(const ParamSpec& spec, size_t element, int64_t first, std::span<std::byte> out,
                         const ReadStored& read);

/// Fills out with a parameter's elements from `first` on in the block's order.
using FetchParameter = std::function<void(const ParamSpec& spec, int64_t first, std::span<std::byte> out)>;

/// Bytes of parameters in the order of the files, for a save. A transposed parameter is fetched whole and
/// kept until the next.
class StoredOrder {
 public:
  /// element: bytes of one element of what is fetched.
  StoredOrder(FetchParameter fetch, size_t element) : fetch_(std::move(fetch)), element_(element) {}
  /// Fills out with the parameter's stored bytes from `offset` on.
  void read(const ParamSpec& spec, uint64_t offset, std::span<std::byte> out);
  /// The most that it holds: the largest transposed parameter twice.
  [[nodiscard]] static size_t bytes(const ParamTable& table, size_t element);

 private:
  void turn(const ParamSpec& spec);
  FetchParameter fetch_;
  size_t element_;
  const ParamSpec* held_ = nullptr;
  std::vector<std::byte> turned_;
};

}  // namespace tandem
