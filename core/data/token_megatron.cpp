// Megatron-LM's megatron/core/datasets/indexed_dataset.py. An index: 9 bytes of magic, u64 version, u8 dtype,
// u64 sequences S, u64 document indices D, i32[S] lengths in tokens, i64[S] byte pointers into the .bin,
// i64[D] document indices, i8[S] modes in multimodal data sets only. Nothing in it is aligned.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/data/token_layout.h"

namespace tandem {

namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kVersionAt = 9, kDtypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26, kArraysAt = 34;
constexpr uint64_t kAtOnce = 1 << 16;  // elements of an array in memory
constexpr const char* kAgain = "write the data set again, or copy both of its files again";

template <class T>
T value_at(const File& index, uint64_t offset) {
  T value{};
  index.read(offset, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

/// Fills the front of `out` with elements of an array that begins at byte `begin`.
template <class T>
std::span<const T> elements(const File& index, uint64_t begin, uint64_t first, uint64_t count,
                            std::vector<T>& out) {
  out.resize(std::min(count - first, kAtOnce));
  index.read(begin + first * sizeof(T), std::as_writable_bytes(std::span(out)));
  return out;
}

/// The type of the tokens by its code.
TokenLayout layout_of_code(uint8_t code, const std::string& where) {
  constexpr const char* kHint = "write the data set with an integer type (Megatron: uint16 or int32)";
  switch (code) {
    case 1:
      return {.token_bytes = 1};
    case 2:
      return {.token_bytes = 1, .is_signed = true};
    case 3:
      return {.token_bytes = 2, .is_signed = true};
    case 4:
      return {.token_bytes = 4, .is_signed = true};
    case 5:
      return {.token_bytes = 8, .is_signed = true};
    case 8:
      return {.token_bytes = 2};
    case 6:
    case 7:
      throw Error(
          Status::failed,
          fmt::format("dtype code {} of the index stands for floating-point numbers, which are no tokens",
                      code),
          where, kHint);
    default:
      throw Error(Status::failed,
                  fmt::format("dtype code {} of the index is unknown; integers are 1 to 5 and 8", code),
                  where, kHint);
  }
}

struct Index {
  const File& file;
  std::string where = printable(file.path());
  uint64_t sequences = 0, documents = 0;  ///< lengths of the arrays

  [[nodiscard]] uint64_t pointers_at() const { return kArraysAt + 4 * sequences; }
  [[nodiscard]] uint64_t documents_at() const { return kArraysAt + 12 * sequences; }

  /// Reads the two counts, which must be those of a file of this size.
  void read_counts() {
    sequences = value_at<uint64_t>(file, kSequencesAt);
    documents = value_at<uint64_t>(file, kDocumentsAt);
    const uint64_t room = file.size() - kArraysAt;
    CHECK(sequences <= room / 12 && documents <= room / 8, Status::failed,
          fmt::format("the index counts {} sequences (12 bytes each) and {} document indices (8 bytes each), "
                      "but has {} bytes in all",
                      sequences, documents, file.size()),
          where, "the index is cut off or damaged: copy it again");
    const uint64_t expected = documents_at() + 8 * documents;  // both are below the file's size
    CHECK(
        file.size() == expected || file.size() == expected + sequences, Status::failed,
        fmt::format("{} sequences and {} document indices make an index of {} bytes ({} with modes), but it "
                    "has {}",
                    sequences, documents, expected, expected + sequences, file.size()),
        where, "the index is cut off or damaged: copy it again");
  }

  /// Document k holds the sequences [indices[k], indices[k + 1]).
  void check_documents() const {
    CHECK(documents > 0, Status::failed, "the index has no document indices", where, kAgain);
    std::vector<int64_t> buffer;
    auto previous = value_at<int64_t>(file, documents_at());
    CHECK(previous == 0, Status::failed, fmt::format("the first document index is {}, not 0", previous),
          where, kAgain);
    for (uint64_t first = 0; first < documents; first += kAtOnce)
      for (const int64_t at : elements(file, documents_at(), first, documents, buffer)) {
        CHECK(at >= previous, Status::failed,
              fmt::format("the document indices fall from {} to {}", previous, at), where, kAgain);
        previous = at;
      }
    CHECK(static_cast<uint64_t>(previous) == sequences, Status::failed,
          fmt::format("the last document index is {}, not the number of sequences, {}", previous, sequences),
          where, kAgain);
  }

  /// The number of tokens, which lie back to back from the first byte of the .bin to its last.
  [[nodiscard]] uint64_t check_sequences(const File& data, uint64_t token_bytes) const {
    std::vector<int32_t> lengths;
    std::vector<int64_t> pointers;
    uint64_t end = 0;  // byte of the .bin, at most its size
    for (uint64_t first = 0; first < sequences; first += kAtOnce) {
      (void)elements(file, kArraysAt, first, sequences, lengths);
      (void)elements(file, pointers_at(), first, sequences, pointers);
      for (size_t i = 0; i < lengths.size(); ++i)
        end = check_sequence(first + i, lengths[i], pointers[i], end, data, token_bytes);
    }
    CHECK(end == data.size(), Status::failed,
          fmt::format("the index lists {} bytes of tokens, but the .bin has {}", end, data.size()),
          printable(data.path()), "the two files are not of one writing: copy or write both again");
    return end / token_bytes;
  }

  /// Where the sequence ends.
  [[nodiscard]] uint64_t check_sequence(uint64_t number, int32_t length, int64_t pointer, uint64_t end,
                                        const File& data, uint64_t token_bytes) const {
    CHECK(length >= 0 && pointer >= 0, Status::failed,
          fmt::format("sequence {} has a length of {} tokens and begins at byte {}", number, length, pointer),
          where, kAgain);
    const auto begin = static_cast<uint64_t>(pointer);
    const uint64_t bytes = static_cast<uint64_t>(length) * token_bytes;
    CHECK(begin <= data.size() && bytes <= data.size() - begin, Status::failed,
          fmt::format("sequence {} ({} tokens of {} bytes from byte {} on) goes past the end of the .bin, "
                      "which has {} bytes",
                      number, length, token_bytes, begin, data.size()),
          where, "the .bin is cut off, or another one's: copy both files again");
    CHECK(begin == end, Status::failed,
          fmt::format("sequence {} begins at byte {} of the .bin, but the one before it ends at {}: only "
                      "sequences that lie back to back are read",
                      number, begin, end),
          where, "write the data set again with Megatron's tools/preprocess_data.py or merge_datasets.py");
    return begin + bytes;
  }
};

}  // namespace

bool is_megatron_index(const File& file) {
  const TokenHeader header = token_header(file);
  return file.size() >= kMagic.size() && std::memcmp(header.data(), kMagic.data(), kMagic.size()) == 0;
}

TokenLayout megatron_layout(const File& data, const File& index) {
  Index read{index};
  CHECK(is_megatron_index(index), Status::failed, "no Megatron index: it does not begin with MMIDIDX",
        read.where, "name the .idx or .bin that Megatron's tools/preprocess_data.py wrote");
  CHECK(index.size() >= kArraysAt, Status::failed,
        fmt::format("{} bytes, but the header of a Megatron index alone has {}", index.size(), kArraysAt),
        read.where, "the index is cut off: copy it again");
  const auto version = value_at<uint64_t>(index, kVersionAt);
  CHECK(version == 1, Status::failed, fmt::format("version {} of the Megatron index; 1 is read", version),
        read.where, "write the data set with a current Megatron-LM");
  TokenLayout layout = layout_of_code(value_at<uint8_t>(index, kDtypeAt), read.where);
  read.read_counts();
  read.check_documents();
  layout.count = read.check_sequences(data, layout.token_bytes);
  return layout;
}

}  // namespace tandem
