#include "server/media/video/frame_table.h"

#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(FrameTableTest, OrdersFramesByTime) {
  // I P B B: decoded I P B B, shown I B B P.
  const FrameTable table =
      OrderFrames({{0, true}, {30, false}, {10, false}, {20, false}});
  EXPECT_TRUE(table.is_timed);
  EXPECT_EQ(table.frames, (std::vector<VideoFrame>{
                              {0, 0, 0}, {10, 2, 0}, {20, 3, 0}, {30, 1, 0}}));
}

TEST(FrameTableTest, LeadingFramesStartAtTheKeyBefore) {
  // The second key packet is shown at 40, frames decoded after it at 20, 30.
  const FrameTable table = OrderFrames({{0, true},
                                        {10, false},
                                        {40, true},
                                        {20, false},
                                        {30, false},
                                        {50, false}});
  EXPECT_EQ(table.frames, (std::vector<VideoFrame>{{0, 0, 0},
                                                   {10, 1, 0},
                                                   {20, 3, 0},
                                                   {30, 4, 0},
                                                   {40, 2, 2},
                                                   {50, 5, 2}}));
}

TEST(FrameTableTest, LeavesOutFramesThatAreNotShown) {
  const FrameTable table =
      OrderFrames({{0, true}, {kNoTime, false, false}, {10, false}});
  EXPECT_TRUE(table.is_timed);
  EXPECT_EQ(table.frames, (std::vector<VideoFrame>{{0, 0, 0}, {10, 2, 0}}));
}

TEST(FrameTableTest, WithoutTimesDecodingBeginsAtTheFirstPacket) {
  const FrameTable table =
      OrderFrames({{0, true}, {kNoTime, false}, {20, true}});
  EXPECT_FALSE(table.is_timed);
  EXPECT_EQ(table.frames,
            (std::vector<VideoFrame>{
                {kNoTime, 0, 0}, {kNoTime, 1, 0}, {kNoTime, 2, 0}}));
}

TEST(FrameTableTest, CountsEachPacketOnce) {
  std::vector<VideoPacket> packets;
  for (int i = 0; i < 100; ++i) packets.push_back({i, i % 10 == 0});
  const FrameTable table = OrderFrames(packets);
  EXPECT_EQ(PacketsToDecode(table, {}), 0u);
  EXPECT_EQ(PacketsToDecode(table, {0}), 1u);
  EXPECT_EQ(PacketsToDecode(table, {9}), 10u);
  EXPECT_EQ(PacketsToDecode(table, {5, 9}), 10u);
  EXPECT_EQ(PacketsToDecode(table, {5, 9, 13, 90}), 10u + 4 + 1);
  EXPECT_EQ(MostPacketsToAFrame(table), 10u);
  EXPECT_EQ(MostPacketsToAFrame({}), 0u);
}

}  // namespace
}  // namespace ballast
