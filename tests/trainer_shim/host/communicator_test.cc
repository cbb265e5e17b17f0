// The two communicators of host memory: Gloo's, over sockets, and the one for
// threads of a process.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fakes/meeting_place.h"
#include "trainer_shim/host/gloo_communicator.h"
#include "trainer_shim/host/gloo_peers.h"
#include "trainer_shim/host/in_process_communicator.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Rank = std::function<absl::Status(Communicator&)>;
using Ranks = std::vector<absl::Status> (*)(uint32_t size, const Rank& body);

// Runs `body` on every rank in its own thread; returns every rank's result. A
// rank leaves the group when its body returns. Ranks of one process meet and
// exchange over Gloo as ranks of several do.
std::vector<absl::Status> GlooRanks(uint32_t size, const Rank& body) {
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

std::vector<absl::Status> InProcessRanks(uint32_t size, const Rank& body) {
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

struct Kind {
  const char* name;
  Ranks run;
  uint32_t ranks;
  uint32_t rounds;
  // Whether every fifth round has more than sockets hold.
  bool is_large;
};

class CommunicatorTest : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(
    All, CommunicatorTest,
    ::testing::Values(Kind{"Gloo", GlooRanks, 4, 10, true},
                      Kind{"InProcess", InProcessRanks, 5, 200, false}),
    [](const auto& info) { return std::string(info.param.name); });

// Number and values of the bytes that `from` sends to `to` in `round`.
size_t Length(const Kind& kind, uint32_t from, uint32_t to, uint32_t round) {
  const size_t some = (from * 7 + to * 3 + round) % 11;
  return kind.is_large && round % 5 == 4 ? some * 300001 : some;
}
uint8_t Value(uint32_t from, uint32_t to, uint32_t round, size_t i) {
  return from * 64 + to * 16 + round * 3 + i + (i >> 8);
}

TEST_P(CommunicatorTest, MovesEverySliceRoundAfterRound) {
  const Kind& kind = GetParam();
  const auto answers = kind.run(kind.ranks, [&](Communicator& end) {
    const uint32_t me = end.rank();
    EXPECT_EQ(end.size(), kind.ranks);
    EXPECT_FALSE(end.on_device());
    for (uint32_t round = 0; round < kind.rounds; ++round) {
      // Two slices per pair: the bytes, which may be none, and the sender.
      std::vector<std::vector<uint8_t>> out(kind.ranks), in(kind.ranks);
      std::vector<uint8_t> names(kind.ranks);
      const uint8_t name = me;
      std::vector<SendSlice> sends;
      std::vector<ReceiveSlice> receives;
      for (uint32_t peer = 0; peer < kind.ranks; ++peer) {
        if (peer == me) continue;
        out[peer].resize(Length(kind, me, peer, round));
        for (size_t i = 0; i < out[peer].size(); ++i) {
          out[peer][i] = Value(me, peer, round, i);
        }
        in[peer].resize(Length(kind, peer, me, round));
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
      for (uint32_t peer = 0; peer < kind.ranks; ++peer) {
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

TEST_P(CommunicatorTest, ASingleRankExchangesWithNobody) {
  const auto answers = GetParam().run(1, [](Communicator& end) {
    EXPECT_TRUE(end.AllToAllV({}, {}, nullptr).ok());
    return end.AllToAllV({}, {}, nullptr);
  });
  EXPECT_TRUE(answers[0].ok()) << answers[0];
}

TEST_P(CommunicatorTest, LeavingEndsPeersThatStillExchange) {
  const auto answers = GetParam().run(3, [](Communicator& end) {
    const absl::Status status = end.AllToAllV({}, {}, nullptr);
    // Leaving after the last exchange does not harm that exchange.
    EXPECT_TRUE(status.ok()) << status;
    if (end.rank() == 2) return status;
    const absl::Status next = end.AllToAllV({}, {}, nullptr);
    EXPECT_EQ(end.AllToAllV({}, {}, nullptr), next);
    return next;
  });
  EXPECT_TRUE(answers[2].ok());
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(answers[rank].code(), absl::StatusCode::kUnavailable);
  }
}

TEST(GlooCommunicatorTest, NamesTheRankThatLeft) {
  const auto answers = GlooRanks(3, [](Communicator& end) {
    const absl::Status status = end.AllToAllV({}, {}, nullptr);
    if (end.rank() == 2) return status;
    const absl::Status next = end.AllToAllV({}, {}, nullptr);
    EXPECT_EQ(end.Check(), next);
    return next;
  });
  bool one_names_the_culprit = false;
  for (const uint32_t rank : {0, 1}) {
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
  const auto answers = GlooRanks(2, [&](Communicator& end) {
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

// What rank 0 sends and rank 1 expects, which differ, and what is said of it.
struct WrongSlices {
  std::vector<SendSlice> sends;
  std::vector<ReceiveSlice> receives;
  const char* message;

  absl::Status Exchange(Communicator& end) const {
    return end.rank() == 0 ? end.AllToAllV(sends, {}, nullptr)
                           : end.AllToAllV({}, receives, nullptr);
  }
};

TEST(GlooCommunicatorTest, SlicesThatDoNotMatchFailBothRanks) {
  std::vector<uint8_t> bytes(8);
  const auto out = absl::MakeConstSpan(bytes);
  std::vector<uint8_t> room(8);
  const auto in = absl::MakeSpan(room);
  const WrongSlices cases[] = {
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
  for (const WrongSlices& c : cases) {
    room.assign(8, 0xEE);
    const auto answers =
        GlooRanks(2, [&](Communicator& end) { return c.Exchange(end); });
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
  const auto answers = GlooRanks(2, [](Communicator& end) {
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

// With 2 s the kernel ended connections whose ends were alive: one second of
// both cores elsewhere is enough.
TEST(EndWhenSilentTest, ABusyMachineIsNotTakenForALostOne) {
  for (const auto& [asked, seconds] :
       std::vector<std::pair<absl::Duration, int>>{
           {absl::Seconds(2), 10},
           {absl::Seconds(30), 30},
           {absl::InfiniteDuration(), 32767}}) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(fd, 0);
    EndWhenSilent(fd, asked);
    int milliseconds = 0;
    int idle = 0;
    socklen_t bytes = sizeof(idle);
    getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, &bytes);
    getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &bytes);
    close(fd);
    EXPECT_EQ(milliseconds, 1000 * seconds) << asked;
    EXPECT_EQ(idle, seconds / 2) << asked;
  }
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

TEST(InProcessCommunicatorTest, AbortEndsWaitingRanksAndIsFinal) {
  const auto answers = InProcessRanks(3, [](Communicator& end) {
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

TEST(InProcessCommunicatorTest, SlicesThatDoNotMatchFailEveryRank) {
  std::vector<uint8_t> bytes(8);
  const auto out = absl::MakeConstSpan(bytes);
  std::vector<uint8_t> room(8);
  const auto in = absl::MakeSpan(room);
  const WrongSlices cases[] = {
      {{{1, out}}, {}, "rank 0 sends 8 bytes to rank 1, which expects none"},
      {{}, {{0, in}}, "rank 0 sends 0 bytes to rank 1, which expects 8"},
      {{{1, out}}, {{0, in.subspan(1)}}, "which expects 7"},
      {{{0, out}}, {}, "rank 0 sends to rank 0"},
      {{{9, out}}, {}, "rank 0 sends to rank 9"},
      {{}, {{9, in}}, "rank 1 receives from rank 9"},
  };
  for (const WrongSlices& c : cases) {
    const auto answers =
        InProcessRanks(2, [&](Communicator& end) { return c.Exchange(end); });
    for (const absl::Status& status : answers) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr(c.message));
    }
  }
}

TEST(ExchangeAddressTest, StaysOnThisMachineWhereItsServersDo) {
  for (const char* server :
       {"unix:/run/a.sock", "127.0.0.1:7070", "localhost:7070", "[::1]:7070"}) {
    EXPECT_EQ(*ExchangeAddress({server}, ""), "127.0.0.1");
  }
}

TEST(ExchangeAddressTest, InterfacesGoByNameOrAddress) {
  EXPECT_EQ(*ExchangeAddress({"10.0.0.1:7070"}, "lo"), "127.0.0.1");
  EXPECT_EQ(*ExchangeAddress({}, "127.0.0.1"), "127.0.0.1");
}

TEST(ExchangeAddressTest, WhatThisMachineLacksIsNamed) {
  for (const char* interface : {"no-such0", "192.0.2.1"}) {
    const auto address = ExchangeAddress({}, interface);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(address.status().message(), HasSubstr(interface));
  }
  // .invalid never resolves.
  const auto unknown = ExchangeAddress({"unix:/a", "host.invalid:7070"}, "");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(unknown.status().message(), HasSubstr("host.invalid"));
}

constexpr uint64_t kRun = 7;

// What rank 0 and rank 1 send each other when 0 sends slices of `lengths` to 1,
// which expects `expected`.
struct Pair {
  PeerHeader zero;  // from 0 to 1
  PeerHeader one;   // from 1 to 0
};
Pair HeadersFor(const std::vector<size_t>& lengths,
                const std::vector<size_t>& expected) {
  static std::vector<uint8_t> bytes(100);
  std::vector<SendSlice> sends;
  for (const size_t length : lengths) {
    sends.push_back({1, absl::MakeConstSpan(bytes).first(length)});
  }
  std::vector<ReceiveSlice> receives;
  for (const size_t length : expected) {
    receives.push_back({0, absl::MakeSpan(bytes).first(length)});
  }
  return {GetHeaders(kRun, 3, 0, 2, sends, {})[1],
          GetHeaders(kRun, 3, 1, 2, {}, receives)[0]};
}

TEST(PeerHeaderTest, FitsWhatThePeerExpects) {
  for (const auto& [sent, expected] :
       std::vector<std::pair<std::vector<size_t>, std::vector<size_t>>>{
           {{}, {}}, {{5}, {5}}, {{5, 0, 9}, {5, 9}}, {{0}, {}}}) {
    const Pair pair = HeadersFor(sent, expected);
    EXPECT_TRUE(CheckHeader(pair.zero, pair.one).ok());
    EXPECT_TRUE(CheckHeader(pair.one, pair.zero).ok());
  }
}

TEST(PeerHeaderTest, BothRanksSeeOtherLengths) {
  for (const auto& [sent, expected] :
       std::vector<std::pair<std::vector<size_t>, std::vector<size_t>>>{
           {{5}, {}},
           {{}, {5}},
           {{5}, {6}},
           {{5, 9}, {9, 5}},
           {{5, 9}, {14}}}) {
    const Pair pair = HeadersFor(sent, expected);
    for (const absl::Status& status :
         {CheckHeader(pair.zero, pair.one), CheckHeader(pair.one, pair.zero)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr("rank 0 sends"));
      EXPECT_THAT(status.message(), HasSubstr("to rank 1"));
    }
  }
}

TEST(PeerHeaderTest, StrangersAreRefused) {
  const Pair pair = HeadersFor({5}, {5});
  const auto found = [&](auto change) {
    PeerHeader got = pair.zero;
    change(&got);
    return CheckHeader(got, pair.one).code();
  };
  const auto refused = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(found([](PeerHeader* h) { h->magic = 1; }), refused);
  EXPECT_EQ(found([](PeerHeader* h) { h->run = 8; }), refused);
  EXPECT_EQ(found([](PeerHeader* h) { h->from = 2; }), refused);
  EXPECT_EQ(found([](PeerHeader* h) { h->to = 2; }), refused);
  EXPECT_EQ(found([](PeerHeader* h) { h->number = 4; }),
            absl::StatusCode::kInvalidArgument);
}

TEST(PeerPortsTest, ComeBackAsTheyWere) {
  for (const char* ip : {"127.0.0.1", "10.1.2.3", "fd00::12"}) {
    PeerPorts ports;
    ports.run = 0x1122334455667788;
    ports.ip = ip;
    ports.ports = {0, 1, 443, 65535};
    const auto bytes = ports.Encode();
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto back = PeerPorts::Decode(*bytes, 4);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->run, ports.run);
    EXPECT_EQ(back->ip, ip);
    EXPECT_EQ(back->ports, ports.ports);
  }
}

TEST(PeerPortsTest, FitIntoARendezvous) {
  PeerPorts ports;
  ports.ip = "fd00:1234:5678:9abc:def0:1234:5678:9abc";
  ports.ports.resize(PeerPorts::kMaxRanks);
  EXPECT_LE(ports.Encode()->size(), 4096);
  ports.ports.resize(PeerPorts::kMaxRanks + 1);
  EXPECT_EQ(ports.Encode().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PeerPortsTest, OtherBytesAreRefused) {
  PeerPorts ports;
  ports.ip = "127.0.0.1";
  ports.ports = {0, 1};
  const std::string good = *ports.Encode();
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(PeerPorts::Decode(good.substr(0, bytes), 2).ok()) << bytes;
  }
  EXPECT_FALSE(PeerPorts::Decode(good + "x", 2).ok());
  EXPECT_FALSE(PeerPorts::Decode(good, 3).ok());
  EXPECT_FALSE(PeerPorts::Decode("X" + good.substr(1), 2).ok());
  std::string no_address = good;
  no_address[13] = 'x';  // in the IP address
  EXPECT_EQ(PeerPorts::Decode(no_address, 2).status().code(),
            absl::StatusCode::kDataLoss);
  ports.ip = "localhost";
  EXPECT_EQ(ports.Encode().status().code(), absl::StatusCode::kInvalidArgument);
}

// A thread that holds its end and asks for nothing more.
TEST(InProcessGroupTest, ARankThatDoesNotComeEndsTheOthersByName) {
  const auto ends = InProcessGroup(3, absl::Milliseconds(50));
  std::thread peer(
      [&] { EXPECT_FALSE(ends[2]->AllToAllV({}, {}, nullptr).ok()); });
  const absl::Status waited = ends[0]->AllToAllV({}, {}, nullptr);
  peer.join();
  EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(waited.message()),
              AllOf(HasSubstr("for rank 1"), HasSubstr("did not come")));
  EXPECT_EQ(ends[1]->AllToAllV({}, {}, nullptr), waited);
}

}  // namespace
}  // namespace ballast
