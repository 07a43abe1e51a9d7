// Many threads at once, for ThreadSanitizer and for the values.
#include "host_rig.h"

namespace tandem::gpu {
namespace {

TEST(ChaosThreads, FourStreamsPassOneTensorRound) {
  constexpr int kStreams = 4;
  constexpr int kRounds = 150;
  Rig rig;
  const Buffer buffer = rig.device.allocate(1024 * 4, "weights");
  const Tensor all = buffer.tensor(DType::f32, {1024});
  Pinned<float> host(rig.device, 1024);
  const auto lane = rig.device.lane("cpu", Purpose::adam);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int s = 0; s < kStreams; ++s)
    streams.push_back(rig.device.stream("s" + std::to_string(s), Purpose::other, 0));
  streams[0]->fill_zero(all);
  Fence turn = streams[0]->record();
  float sum_of_checks = 0;
  for (int round = 0; round < kRounds; ++round) {
    Stream& stream = *streams[static_cast<size_t>(round % kStreams)];
    stream.wait(turn);
    rig.device.enqueue(stream, add_value(all, 1));
    stream.copy(host.tensor(), all);
    lane->wait(stream.record());
    const auto ready = rig.device.promise("checked");
    lane->run({"check", {host.tensor()}, {}, [&, round, ready] {
                 for (const float value : host.values())
                   if (value != static_cast<float>(round + 1)) sum_of_checks += 1;
                 ready->fulfil(Fence());
               }});
    turn = lane->record();
    if (round % 7 == 0) (void)ready->recorded();
  }
  turn.wait();
  EXPECT_EQ(sum_of_checks, 0);
  EXPECT_EQ(host.values()[1023], static_cast<float>(kRounds));
}

TEST(ChaosThreads, TasksOfSeveralLanesEnqueueAtOnce) {
  constexpr int kLanes = 3;
  constexpr int kTasks = 60;
  Rig rig;
  std::vector<Buffer> buffers;
  std::vector<std::unique_ptr<Pinned<float>>> hosts;
  const auto upload = rig.device.stream("h2d", Purpose::h2d, 0);
  const auto download = rig.device.stream("d2h", Purpose::d2h, 0);
  std::vector<std::unique_ptr<HostLane>> lanes;
  for (int l = 0; l < kLanes; ++l) {
    buffers.push_back(rig.device.allocate(256, "weights"));
    hosts.push_back(std::make_unique<Pinned<float>>(rig.device, 64));
    lanes.push_back(rig.device.lane("cpu" + std::to_string(l), Purpose::adam));
  }
  for (size_t l = 0; l < kLanes; ++l) {
    std::shared_ptr<FencePromise> before;
    for (int t = 0; t < kTasks; ++t) {
      // The next task writes the memory that this one's upload reads: it waits for the fence of the promise.
      if (before) lanes[l]->wait(before->recorded());
      before = rig.device.promise("uploaded");
      lanes[l]->run({"write", {hosts[l]->tensor()}, {hosts[l]->tensor()}, [&, l, before] {
                       for (float& value : hosts[l]->values()) value += 1;
                       upload->copy(buffers[l].tensor(DType::f32, {64}), hosts[l]->tensor());
                       before->fulfil(upload->record());
                     }});
    }
    download->wait(before->recorded());
    Pinned<float> back(rig.device, 64);
    download->copy(back.tensor(), buffers[l].tensor(DType::f32, {64}));
    download->record().wait();
    EXPECT_EQ(back.values()[63], static_cast<float>(kTasks));
  }
}

}  // namespace
}  // namespace tandem::gpu
