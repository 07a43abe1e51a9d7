#include "bench/isa/streams_text.h"

namespace tandem {

void move_streams_16(const std::vector<Stream64>& streams, int64_t begin, int64_t end) {
  move_streams<16>(streams, begin, end);
}

}  // namespace tandem
