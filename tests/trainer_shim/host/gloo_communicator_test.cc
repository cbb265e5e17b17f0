#include "trainer_shim/host/gloo_communicator.h"

#include <sys/socket.h>

#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fakes/meeting_place.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Rank = std::function<absl::Status(Communicator&)>;

// Runs `body` on every rank in its own thread; returns every rank's result. A
// rank leaves the group when its body returns. Ranks of one process meet and
// exchange as ranks of several do.
std::vector<absl::Status> RunRanks(uint32_t size, const Rank& body) {
  MeetingPlace place;
  std::vector<absl::Status> answers(size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto server = place.Client();
      auto end = MeetGlooCommunicator(server.get(), "group", rank, size,
                                      absl::Minutes(1), {});
      answers[rank] = end.ok() ? body(**end) : end.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

// Number and values of the bytes that `from` sends to `to` in `round`; every
// fifth round has more than sockets hold.
size_t Length(uint32_t from, uint32_t to, uint32_t round) {
  const size_t some = (from * 7 + to * 3 + round) % 11;
  return round % 5 == 4 ? some * 300001 : some;
}
uint8_t Value(uint32_t from, uint32_t to, uint32_t round, size_t i) {
  return from * 64 + to * 16 + round * 3 + i + (i >> 8);
}

TEST(GlooCommunicatorTest, MovesEverySliceRoundAfterRound) {
  constexpr uint32_t kRanks = 4;
  const auto answers = RunRanks(kRanks, [&](Communicator& end) {
    const uint32_t me = end.rank();
    EXPECT_EQ(end.size(), kRanks);
    EXPECT_FALSE(end.on_device());
    for (uint32_t round = 0; round < 10; ++round) {
      // Two slices per pair: the bytes, which may be none, and the sender.
      std::vector<std::vector<uint8_t>> out(kRanks), in(kRanks);
      std::vector<uint8_t> names(kRanks);
      const uint8_t name = me;
      std::vector<SendSlice> sends;
      std::vector<ReceiveSlice> receives;
      for (uint32_t peer = 0; peer < kRanks; ++peer) {
        if (peer == me) continue;
        out[peer].resize(Length(me, peer, round));
        for (size_t i = 0; i < out[peer].size(); ++i) {
          out[peer][i] = Value(me, peer, round, i);
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
      for (uint32_t peer = 0; peer < kRanks; ++peer) {
        if (peer == me) continue;
        EXPECT_EQ(names[peer], peer);
        size_t wrong = 0;
        for (size_t i = 0; i < in[peer].size(); ++i) {
          wrong += in[peer][i] != Value(peer, me, round, i);
        }
        EXPECT_EQ(wrong, 0) << "round " << round << " from rank " << peer;
      }
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : answers) EXPECT_TRUE(status.ok()) << status;
}

TEST(GlooCommunicatorTest, ASingleRankExchangesWithNobody) {
  const auto answers = RunRanks(
      1, [](Communicator& end) { return end.AllToAllV({}, {}, nullptr); });
  EXPECT_TRUE(answers[0].ok()) << answers[0];
}

TEST(GlooCommunicatorTest, LeavingEndsPeersThatStillExchange) {
  const auto answers = RunRanks(3, [](Communicator& end) {
    const absl::Status status = end.AllToAllV({}, {}, nullptr);
    // Leaving after the last exchange does not harm that exchange.
    EXPECT_TRUE(status.ok()) << status;
    if (end.rank() == 2) return status;
    const absl::Status next = end.AllToAllV({}, {}, nullptr);
    EXPECT_EQ(end.AllToAllV({}, {}, nullptr), next);
    EXPECT_EQ(end.Check(), next);
    return next;
  });
  EXPECT_TRUE(answers[2].ok());
  bool one_names_the_culprit = false;
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(answers[rank].code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(answers[rank].message(),
                AllOf(HasSubstr(absl::StrCat("rank ", rank, ": rank ")),
                      HasSubstr("left the exchange")))
        << answers[rank];
    one_names_the_culprit |=
        absl::StrContains(answers[rank].message(), "rank 2 left");
  }
  // The other may have seen the first one leave.
  EXPECT_TRUE(one_names_the_culprit);
}

TEST(GlooCommunicatorTest, AbortEndsAWaitingExchangeAndIsFinal) {
  std::promise<void> aborted;
  const auto answers = RunRanks(2, [&](Communicator& end) {
    if (end.rank() == 1) {
      aborted.get_future().wait();
      return end.AllToAllV({}, {}, nullptr);
    }
    std::thread user([&end] {
      end.Abort(absl::CancelledError("by the user"));
      end.Abort(absl::InternalError("too late"));
    });
    // Rank 1 does not come before this has ended.
    const absl::Status status = end.AllToAllV({}, {}, nullptr);
    user.join();
    EXPECT_EQ(end.AllToAllV({}, {}, nullptr), status);
    aborted.set_value();
    return status;
  });
  EXPECT_EQ(answers[0], absl::CancelledError("by the user"));
  EXPECT_EQ(answers[1].code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(answers[1].message(), HasSubstr("rank 0 left"));
}

TEST(GlooCommunicatorTest, SlicesThatDoNotMatchFailBothRanks) {
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
      {{{1, out}}, {}, "rank 0 sends 8 bytes in 1 slices to rank 1, which"},
      {{}, {{0, in}}, "which expects 8 bytes in 1 slices"},
      {{{1, out}}, {{0, in.subspan(1)}}, "which expects 7 bytes"},
      {{{1, out}},
       {{0, in.first(4)}, {0, in.subspan(4)}},
       "which expects 8 bytes in 2 slices"},
      {{{1, out.first(3)}, {1, out.subspan(3)}},
       {{0, in.first(5)}, {0, in.subspan(5)}},
       "8 bytes in 2 slices of other lengths"},
  };
  for (const Case& c : cases) {
    room.assign(8, 0xEE);
    const auto answers = RunRanks(2, [&](Communicator& end) {
      return end.rank() == 0 ? end.AllToAllV(c.sends, {}, nullptr)
                             : end.AllToAllV({}, c.receives, nullptr);
    });
    int named = 0;
    for (const absl::Status& status : answers) {
      // The rank that finds it out second may find the connection closed.
      EXPECT_FALSE(status.ok());
      if (!absl::IsInvalidArgument(status)) continue;
      ++named;
      EXPECT_THAT(status.message(), HasSubstr(c.message));
    }
    EXPECT_GT(named, 0) << c.message;
    EXPECT_THAT(room, ::testing::Each(0xEE));
  }
}

TEST(GlooCommunicatorTest, PeersThatDoNotExistAreRefused) {
  const auto answers = RunRanks(2, [](Communicator& end) {
    const uint8_t byte = 0;
    const uint32_t peer = end.rank() == 0 ? 9 : 1;
    return end.AllToAllV({{peer, {&byte, 1}}}, {}, nullptr);
  });
  EXPECT_EQ(answers[0],
            absl::InvalidArgumentError(
                "rank 0 sends to rank 9, wanted another rank below 2"));
  EXPECT_EQ(answers[1],
            absl::InvalidArgumentError(
                "rank 1 sends to rank 1, wanted another rank below 2"));
}

// Two ranks that are connected but have not shown their headers.
struct Linked {
  std::unique_ptr<GlooLink> ends[2];
};
Linked Link() {
  Linked linked;
  std::vector<PeerPorts> ports;
  for (uint32_t rank : {0, 1}) {
    linked.ends[rank] = *GlooLink::Listen("127.0.0.1", rank, 2,
                                          absl::Minutes(1), absl::Seconds(30));
    ports.push_back(linked.ends[rank]->ports());
  }
  std::thread other([&] { EXPECT_TRUE(linked.ends[1]->Connect(ports).ok()); });
  EXPECT_TRUE(linked.ends[0]->Connect(ports).ok());
  other.join();
  return linked;
}

TEST(GlooLinkTest, ARankThatIsSilentIsNamedAfterTheTimeout) {
  const Linked linked = Link();
  const absl::Status late = linked.ends[0]->Exchange(
      GetHeaders(7, 0, 0, 2, {}, {}), {}, {}, absl::Milliseconds(100));
  EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(late.message(), HasSubstr("rank 0: no sign of rank 1 in time"));
}

TEST(GlooLinkTest, ARankOfAnotherRunIsRefused) {
  const Linked linked = Link();
  absl::Status ends[2];
  std::thread other([&] {
    ends[1] = linked.ends[1]->Exchange(GetHeaders(8, 0, 1, 2, {}, {}), {}, {},
                                       absl::Minutes(1));
    linked.ends[1]->Close();
  });
  ends[0] = linked.ends[0]->Exchange(GetHeaders(7, 0, 0, 2, {}, {}), {}, {},
                                     absl::Minutes(1));
  linked.ends[0]->Close();
  other.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(ends[0]) ||
              absl::IsFailedPrecondition(ends[1]))
      << ends[0] << ends[1];
}

TEST(GlooLinkTest, TheKernelWatchesEveryConnection) {
  const Linked linked = Link();
  const uint16_t here = linked.ends[0]->ports().ports[1];
  const uint16_t there = linked.ends[1]->ports().ports[0];
  int watched = 0;
  for (const TcpConnection& connection : TcpConnections()) {
    if (connection.own.port != here && connection.own.port != there &&
        connection.peer.port != here && connection.peer.port != there) {
      continue;
    }
    int on = 0;
    socklen_t bytes = sizeof(on);
    getsockopt(connection.fd, SOL_SOCKET, SO_KEEPALIVE, &on, &bytes);
    watched += on;
  }
  EXPECT_EQ(watched, 2);
}

TEST(GlooLinkTest, AnAddressOfAnotherMachineIsRefused) {
  const auto link =
      GlooLink::Listen("192.0.2.1", 0, 2, absl::Minutes(1), absl::Seconds(30));
  EXPECT_EQ(link.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(link.status().message(), HasSubstr("192.0.2.1"));
}

TEST(MeetGlooCommunicatorTest, RanksOutsideTheGroupAreRefused) {
  MeetingPlace place;
  const auto server = place.Client();
  for (const auto& [rank, size] :
       std::vector<std::pair<uint32_t, uint32_t>>{{2, 2}, {0, 0}, {0, 2001}}) {
    const auto end = MeetGlooCommunicator(server.get(), "group", rank, size,
                                          absl::Minutes(1), {});
    EXPECT_EQ(end.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(MeetGlooCommunicatorTest, RanksOfAnotherRunAreNotWaitedForLonger) {
  MeetingPlace place;
  std::vector<absl::Status> answers(2);
  std::vector<std::thread> threads;
  for (uint32_t rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      const auto server = place.Client();
      answers[rank] = MeetGlooCommunicator(server.get(), "group", rank, 2,
                                           absl::Milliseconds(100), {},
                                           absl::StrCat("run ", rank))
                          .status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : answers) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  }
}

}  // namespace
}  // namespace ballast
