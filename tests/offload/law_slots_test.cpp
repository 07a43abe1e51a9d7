// Which slot a gradient lands in.
#include <gtest/gtest.h>

#include <array>

#include "core/base/error.h"
#include "offload/slots.h"

namespace tandem {
namespace {

struct Memory {
  std::array<float, 2> bytes{};
  Slots slots;
  explicit Memory(int readers = 1)
      : slots({{Tensor(bytes.data(), DType::f32, {1}), Tensor(bytes.data() + 1, DType::f32, {1})}},
              {readers}) {}
  int64_t place(Tensor tensor) const { return tensor.data<float>() - bytes.data(); }
};

/// With a delayed update version k + 1 is on its way to the device when the gradient of step k + 1 lands: it
/// must not wait for that in the same slot while the other one has been free for a step.
TEST(DelayedSlots, AGradientLandsWhereTheLastUploadIsNot) {
  Memory memory;
  const int64_t first = memory.place(memory.slots.land(0, 0).memory);
  const int64_t second = memory.place(memory.slots.land(0, 1).memory);
  EXPECT_NE(first, second);
  for (int64_t step = 2; step < 8; ++step) {
    memory.slots.release(0, step - 1, Fence{});  // holds weights(step - 1), of the gradient of step - 2
    const int64_t here = memory.place(memory.slots.land(0, step).memory);
    EXPECT_EQ(here, step % 2 == 0 ? first : second) << "step " << step;
    EXPECT_EQ(memory.place(memory.slots.gradient(0, step)), here);
    EXPECT_EQ(memory.place(memory.slots.weights(0, step + 1)), here) << "Adam writes where the gradient was";
  }
}

TEST(DelayedSlots, RefuseWhatTheyDoNotHold) {
  Memory memory;
  (void)memory.slots.land(0, 0);
  (void)memory.slots.land(0, 1);
  EXPECT_THROW((void)memory.slots.land(0, 2), InternalError);
  EXPECT_THROW((void)memory.slots.gradient(0, 2), InternalError);
  memory.slots.release(0, 1, Fence{});
  EXPECT_THROW(memory.slots.release(0, 1, Fence{}), InternalError);
  EXPECT_THROW((void)memory.slots.weights(0, 1), InternalError) << "a free slot holds nothing";
}

/// The upload and the next update, which takes the upper halves of its masters from there.
TEST(DelayedSlots, AreTakenUntilEveryReaderHasReleasedThem) {
  Memory memory(2);
  const int64_t first = memory.place(memory.slots.land(0, 0).memory);
  (void)memory.slots.land(0, 1);
  memory.slots.release(0, 1, Fence{});
  EXPECT_EQ(memory.place(memory.slots.weights(0, 1)), first) << "the other one still reads it";
  EXPECT_THROW((void)memory.slots.land(0, 2), InternalError);
  memory.slots.release(0, 1, Fence{});
  const Slots::Landing third = memory.slots.land(0, 2);
  EXPECT_EQ(memory.place(third.memory), first);
  EXPECT_EQ(third.free.size(), 2u) << "whoever lands waits for both";
}

}  // namespace
}  // namespace tandem
