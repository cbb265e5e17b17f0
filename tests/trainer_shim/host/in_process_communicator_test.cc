#include "trainer_shim/host/in_process_communicator.h"

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

using Rank = std::function<absl::Status(Communicator&)>;

// Runs `body` on every rank in its own thread; returns every rank's result. A
// rank leaves the group when its body returns.
std::vector<absl::Status> RunRanks(uint32_t size, const Rank& body) {
  auto ends = InProcessGroup(size);
  std::vector<absl::Status> answers(size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&answers, &body, rank, end = std::move(ends[rank])] {
      answers[rank] = body(*end);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

// Bytes that `from` sends to `to` in `round`: their number and each value.
size_t Length(uint32_t from, uint32_t to, uint32_t round) {
  return (from * 7 + to * 3 + round) % 11;
}
uint8_t Value(uint32_t from, uint32_t to, uint32_t round, size_t i) {
  return from * 64 + to * 16 + round * 3 + i;
}

TEST(InProcessCommunicatorTest, MovesEverySliceRoundAfterRound) {
  constexpr uint32_t kRanks = 5;
  const auto answers = RunRanks(kRanks, [](Communicator& end) {
    const uint32_t me = end.rank();
    for (uint32_t round = 0; round < 200; ++round) {
      // Two slices per pair: the bytes, then the sender's rank.
      std::vector<std::vector<uint8_t>> out(kRanks), in(kRanks);
      std::vector<uint8_t> names(kRanks);
      const uint8_t name = me;
      std::vector<SendSlice> sends;
      std::vector<ReceiveSlice> receives;
      for (uint32_t peer = 0; peer < kRanks; ++peer) {
        if (peer == me) continue;
        for (size_t i = 0; i < Length(me, peer, round); ++i) {
          out[peer].push_back(Value(me, peer, round, i));
        }
        in[peer].resize(Length(peer, me, round));
        sends.push_back({peer, out[peer]});
        sends.push_back({peer, {&name, 1}});
        receives.push_back({peer, absl::MakeSpan(in[peer])});
        receives.push_back({peer, {&names[peer], 1}});
      }
      if (auto status = end.AllToAllV(sends, receives, nullptr); !status.ok()) {
        return status;
      }
      // The sender may overwrite at once.
      for (auto& bytes : out) std::fill(bytes.begin(), bytes.end(), 0xEE);
      for (uint32_t peer = 0; peer < kRanks; ++peer) {
        if (peer == me) continue;
        EXPECT_EQ(names[peer], peer);
        for (size_t i = 0; i < in[peer].size(); ++i) {
          EXPECT_EQ(in[peer][i], Value(peer, me, round, i));
        }
      }
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : answers) EXPECT_TRUE(status.ok()) << status;
}

TEST(InProcessCommunicatorTest, ASingleRankExchangesWithNobody) {
  const auto ends = InProcessGroup(1);
  EXPECT_TRUE(ends[0]->AllToAllV({}, {}, nullptr).ok());
  EXPECT_TRUE(ends[0]->AllToAllV({}, {}, nullptr).ok());
}

TEST(InProcessCommunicatorTest, AbortEndsWaitingRanksAndIsFinal) {
  const auto answers = RunRanks(3, [](Communicator& end) {
    if (end.rank() == 1) {
      end.Abort(absl::DataLossError("rank 1: bad block"));
      end.Abort(absl::InternalError("too late"));
    }
    const absl::Status first = end.AllToAllV({}, {}, nullptr);
    EXPECT_EQ(end.AllToAllV({}, {}, nullptr), first);
    return first;
  });
  for (const absl::Status& status : answers) {
    EXPECT_EQ(status, absl::DataLossError("rank 1: bad block"));
  }
}

TEST(InProcessCommunicatorTest, LeavingEndsPeersThatStillExchange) {
  const auto answers = RunRanks(3, [](Communicator& end) {
    absl::Status status = end.AllToAllV({}, {}, nullptr);
    // Leaving after the last exchange does not harm that exchange.
    EXPECT_TRUE(status.ok()) << status;
    return end.rank() == 2 ? status : end.AllToAllV({}, {}, nullptr);
  });
  EXPECT_TRUE(answers[2].ok());
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(answers[rank].code(), absl::StatusCode::kUnavailable);
  }
}

TEST(InProcessCommunicatorTest, SlicesThatDoNotMatchFailEveryRank) {
  struct Case {
    std::vector<SendSlice> sends;        // of rank 0
    std::vector<ReceiveSlice> receives;  // of rank 1
    const char* message;
  };
  std::vector<uint8_t> bytes(8);
  const auto out = absl::MakeConstSpan(bytes);
  std::vector<uint8_t> room(8);
  const auto in = absl::MakeSpan(room);
  const Case cases[] = {
      {{{1, out}}, {}, "rank 0 sends 8 bytes to rank 1, which expects none"},
      {{}, {{0, in}}, "rank 0 sends 0 bytes to rank 1, which expects 8"},
      {{{1, out}}, {{0, in.subspan(1)}}, "which expects 7"},
      {{{0, out}}, {}, "rank 0 sends to rank 0"},
      {{{9, out}}, {}, "rank 0 sends to rank 9"},
      {{}, {{9, in}}, "rank 1 receives from rank 9"},
  };
  for (const Case& c : cases) {
    const auto answers = RunRanks(2, [&](Communicator& end) {
      return end.rank() == 0 ? end.AllToAllV(c.sends, {}, nullptr)
                             : end.AllToAllV({}, c.receives, nullptr);
    });
    for (const absl::Status& status : answers) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr(c.message));
    }
  }
}

}  // namespace
}  // namespace ballast
