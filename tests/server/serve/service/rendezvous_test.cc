#include "server/serve/service/rendezvous.h"

#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Result = std::optional<absl::StatusOr<v1::RendezvousResponse>>;

v1::RendezvousRequest Member(const std::string& group, uint32_t rank,
                             uint32_t size, const std::string& id = "") {
  v1::RendezvousRequest request;
  request.set_group(group);
  request.set_rank(rank);
  request.set_size(size);
  request.set_id(id);
  return request;
}

v1::RendezvousRequest OfRun(const std::string& run,
                            v1::RendezvousRequest request) {
  request.set_run(run);
  return request;
}

v1::RendezvousRequest As(const std::string& member,
                         v1::RendezvousRequest request) {
  request.set_member(member);
  return request;
}

// Joins and stores the answer in `result`, which must outlive it.
uint64_t Join(Rendezvous* rendezvous, const v1::RendezvousRequest& request,
              Result* result) {
  return rendezvous->Join(
      request, [result](absl::StatusOr<v1::RendezvousResponse> response) {
        EXPECT_FALSE(result->has_value()) << "answered twice";
        *result = std::move(response);
      });
}

// Rank 0's id, or "" if the rank waits.
std::string IdOf(const Result& result) {
  if (!result.has_value()) return "";
  EXPECT_TRUE(result->ok()) << result->status();
  return (*result)->id();
}

absl::StatusCode GetCode(const Result& result) {
  return result.has_value() ? result->status().code()
                            : absl::StatusCode::kUnknown;
}

absl::StatusCode GetCode(Rendezvous* rendezvous,
                         const v1::RendezvousRequest& request) {
  Result result;
  Join(rendezvous, request, &result);
  return GetCode(result);
}

TEST(RendezvousTest, AllRanksGetRank0sId) {
  Rendezvous rendezvous;
  std::vector<Result> results(4);
  Join(&rendezvous, Member("g", 1, 4), &results[1]);
  Join(&rendezvous, Member("g", 3, 4), &results[3]);
  Join(&rendezvous, Member("g", 0, 4, "the id"), &results[0]);
  for (const Result& result : results) EXPECT_FALSE(result.has_value());
  Join(&rendezvous, Member("g", 2, 4), &results[2]);
  for (const Result& result : results) EXPECT_EQ(IdOf(result), "the id");
}

TEST(RendezvousTest, AGroupOfOneMeetsItself) {
  Rendezvous rendezvous;
  for (const char* id : {"first", "second"}) {
    Result result;
    Join(&rendezvous, Member("g", 0, 1, id), &result);
    EXPECT_EQ(IdOf(result), id);
  }
}

TEST(RendezvousTest, AGroupThatHasMetMayMeetAgain) {
  Rendezvous rendezvous;
  for (const char* id : {"first", "second"}) {
    Result zero, one;
    Join(&rendezvous, Member("g", 1, 2), &one);
    EXPECT_FALSE(one.has_value());
    Join(&rendezvous, Member("g", 0, 2, id), &zero);
    EXPECT_EQ(IdOf(zero), id);
    EXPECT_EQ(IdOf(one), id);
  }
}

TEST(RendezvousTest, SaysWhoWaits) {
  Rendezvous rendezvous;
  const auto ask = [&](const std::string& run) {
    v1::RendezvousRequest request;
    request.set_group("g");
    request.set_run(run);
    request.set_asks(true);
    return rendezvous.WhoWaits(request);
  };
  EXPECT_EQ(ask("1").waiting(), 0u);
  std::vector<Result> results(40);
  for (const uint32_t rank : {1, 2, 5}) {
    Join(&rendezvous, OfRun("1", Member("g", rank, 7)), &results[rank]);
  }
  EXPECT_EQ(ask("1").waiting(), 3u);
  EXPECT_THAT(ask("1").missing(), ElementsAre(0, 3, 4, 6));
  EXPECT_EQ(ask("2").waiting(), 0u);
  EXPECT_THAT(ask("2").missing(), SizeIs(0));
  // At most 16 are named.
  Join(&rendezvous, OfRun("2", Member("g", 30, 40)), &results[30]);
  EXPECT_THAT(ask("2").missing(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                              11, 12, 13, 14, 15));
  for (const Result& result : results) EXPECT_FALSE(result.has_value());
}

// A start of three ranks is aborted after any of its ranks have come, and all
// of them leave. The next start meets as if there had been no earlier one.
TEST(RendezvousTest, AnAbortedStartLeavesNothingBehind) {
  constexpr uint32_t kSize = 3;
  for (uint32_t came = 1; came + 1 < 1u << kSize; ++came) {
    for (const uint32_t first : {0u, 1u, 2u}) {
      Rendezvous rendezvous;
      std::vector<Result> old(kSize);
      std::vector<uint64_t> tickets;
      for (uint32_t rank = 0; rank < kSize; ++rank) {
        if ((came >> rank & 1) == 0) continue;
        tickets.push_back(Join(&rendezvous,
                               Member("g", rank, kSize, rank == 0 ? "old" : ""),
                               &old[rank]));
      }
      for (const uint64_t ticket : tickets) {
        EXPECT_TRUE(rendezvous.Leave(ticket));
      }
      std::vector<Result> fresh(kSize);
      for (uint32_t i = 0; i < kSize; ++i) {
        const uint32_t rank = (first + i) % kSize;
        Join(&rendezvous, Member("g", rank, kSize, rank == 0 ? "new" : ""),
             &fresh[rank]);
      }
      for (const Result& result : old) EXPECT_FALSE(result.has_value());
      for (const Result& result : fresh) EXPECT_EQ(IdOf(result), "new");
    }
  }
}

// Ranks of an earlier start that still wait take no part and are not answered.
TEST(RendezvousTest, NeverMixesTwoRuns) {
  Rendezvous rendezvous;
  Result old_zero, old_one, new_zero, new_one;
  Join(&rendezvous, OfRun("1", Member("g", 1, 2)), &old_one);
  Join(&rendezvous, OfRun("2", Member("g", 0, 2, "new")), &new_zero);
  EXPECT_FALSE(old_one.has_value());
  EXPECT_FALSE(new_zero.has_value());
  Join(&rendezvous, OfRun("2", Member("g", 1, 2)), &new_one);
  EXPECT_EQ(IdOf(new_zero), "new");
  EXPECT_EQ(IdOf(new_one), "new");
  EXPECT_EQ((*new_one)->run(), "2");
  EXPECT_FALSE(old_one.has_value());
  // Once complete, the earlier one meets by itself.
  Join(&rendezvous, OfRun("1", Member("g", 0, 2, "old")), &old_zero);
  EXPECT_EQ(IdOf(old_one), "old");
}

TEST(RendezvousTest, AssignsARunToAMeetingWithoutOne) {
  Rendezvous rendezvous;
  std::set<std::string> runs;
  for (const char* id : {"first", "second"}) {
    Result zero, one;
    Join(&rendezvous, Member("g", 0, 2, id), &zero);
    Join(&rendezvous, Member("g", 1, 2), &one);
    EXPECT_EQ((*zero)->run(), (*one)->run());
    EXPECT_THAT((*zero)->run(), SizeIs(32));
    runs.insert((*zero)->run());
  }
  EXPECT_THAT(runs, SizeIs(2));
}

// This holds for another id too: an earlier rank 0 that waits is replaced.
TEST(RendezvousTest, ReplacesAWaitingRankThatComesAgain) {
  Rendezvous rendezvous;
  Result first, second, zero, other_zero;
  const uint64_t ticket = Join(&rendezvous, Member("g", 1, 3), &first);
  Join(&rendezvous, Member("g", 1, 3), &second);
  EXPECT_EQ(GetCode(first), absl::StatusCode::kAborted);
  EXPECT_FALSE(rendezvous.Leave(ticket));
  Join(&rendezvous, Member("g", 0, 3, "id"), &zero);
  Join(&rendezvous, Member("g", 0, 3, "other"), &other_zero);
  EXPECT_EQ(GetCode(zero), absl::StatusCode::kAborted);
  Result two;
  Join(&rendezvous, Member("g", 2, 3), &two);
  for (const Result* result : {&second, &other_zero, &two}) {
    EXPECT_EQ(IdOf(*result), "other");
  }
}

// The answer was lost on its way; the rank asks again.
TEST(RendezvousTest, RepeatsTheAnswerToAMember) {
  Rendezvous rendezvous;
  Result zero, one, again, other;
  Join(&rendezvous, As("a", Member("g", 0, 2, "id")), &zero);
  Join(&rendezvous, As("b", Member("g", 1, 2)), &one);
  Join(&rendezvous, As("b", Member("g", 1, 2)), &again);
  EXPECT_EQ(IdOf(again), "id");
  EXPECT_EQ((*again)->run(), (*one)->run());
  // Rank 1 of the next start never gets the old id.
  Join(&rendezvous, As("c", Member("g", 1, 2)), &other);
  EXPECT_FALSE(other.has_value());
}

TEST(RendezvousTest, DoesNotAnswerARankThatHasLeft) {
  Rendezvous rendezvous;
  Result left, zero, one;
  const uint64_t ticket = Join(&rendezvous, Member("g", 1, 2), &left);
  EXPECT_TRUE(rendezvous.Leave(ticket));
  EXPECT_FALSE(rendezvous.Leave(ticket));
  Join(&rendezvous, Member("g", 0, 2, "id"), &zero);
  EXPECT_FALSE(left.has_value());
  const uint64_t answered = Join(&rendezvous, Member("g", 1, 2), &one);
  EXPECT_EQ(IdOf(one), "id");
  EXPECT_FALSE(rendezvous.Leave(answered));
}

TEST(RendezvousTest, ForgetsAGroupThatAllHaveLeft) {
  Rendezvous rendezvous;
  Result left, other;
  EXPECT_TRUE(rendezvous.Leave(Join(&rendezvous, Member("g", 1, 2), &left)));
  Join(&rendezvous, Member("g", 1, 3), &other);  // another size
  EXPECT_FALSE(other.has_value());
}

TEST(RendezvousTest, RefusesInvalidRequests) {
  Rendezvous rendezvous;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(GetCode(&rendezvous, Member("", 0, 1, "id")), invalid);
  EXPECT_EQ(GetCode(&rendezvous, Member(std::string(257, 'g'), 0, 1, "id")),
            invalid);
  EXPECT_EQ(GetCode(&rendezvous, Member("g", 0, 0, "id")), invalid);
  EXPECT_EQ(GetCode(&rendezvous, Member("g", 2, 2)), invalid);
  EXPECT_EQ(GetCode(&rendezvous, Member("g", 0, UINT32_MAX, "id")), invalid);
  EXPECT_EQ(GetCode(&rendezvous, Member("g", 1, 2, "id")), invalid);
  EXPECT_EQ(GetCode(&rendezvous, Member("g", 0, 2)), invalid);
  EXPECT_EQ(GetCode(&rendezvous, Member("g", 0, 2, std::string(4097, 'i'))),
            invalid);
  EXPECT_EQ(
      GetCode(&rendezvous, OfRun(std::string(257, 'r'), Member("g", 1, 2))),
      invalid);
  EXPECT_EQ(GetCode(&rendezvous, As(std::string(65, 'm'), Member("g", 1, 2))),
            invalid);
}

TEST(RendezvousTest, RefusesDifferentGroupSizes) {
  Rendezvous rendezvous;
  Result one, two;
  Join(&rendezvous, Member("g", 1, 4), &one);
  Join(&rendezvous, Member("g", 2, 5), &two);
  EXPECT_EQ(two->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(two->status().message()),
              HasSubstr("5 members; 1 waiting ranks say 4"));
  EXPECT_FALSE(one.has_value());
}

TEST(RendezvousTest, BoundsGroups) {
  Rendezvous rendezvous;
  std::vector<Result> results(Rendezvous::kMaxGroups);
  std::vector<uint64_t> tickets;
  for (size_t i = 0; i < results.size(); ++i) {
    tickets.push_back(
        Join(&rendezvous, Member(absl::StrCat("g", i), 1, 2), &results[i]));
  }
  EXPECT_EQ(GetCode(&rendezvous, Member("more", 1, 2)),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(rendezvous.Leave(tickets[3]));
  Result more;
  Join(&rendezvous, Member("more", 1, 2), &more);
  EXPECT_FALSE(more.has_value());
}

TEST(RendezvousTest, ForgetsTheOldestMeetingFirst) {
  Rendezvous rendezvous;
  for (size_t i = 0; i <= Rendezvous::kMaxMet; ++i) {
    Result zero;
    Join(&rendezvous, As("a", Member(absl::StrCat("g", i), 0, 1, "id")), &zero);
    EXPECT_EQ(IdOf(zero), "id");
  }
  Result kept, forgotten;
  Join(&rendezvous, As("a", Member("g1", 0, 1, "not looked at")), &kept);
  EXPECT_EQ(IdOf(kept), "id");
  Join(&rendezvous, As("a", Member("g0", 0, 1, "met anew")), &forgotten);
  EXPECT_EQ(IdOf(forgotten), "met anew");
}

TEST(RendezvousTest, DrainAnswersAllRanks) {
  Rendezvous rendezvous;
  Result waiting, late;
  Join(&rendezvous, Member("g", 1, 2), &waiting);
  rendezvous.Drain();
  EXPECT_EQ(waiting->status().code(), absl::StatusCode::kUnavailable);
  Join(&rendezvous, Member("g", 0, 2, "id"), &late);
  EXPECT_EQ(late->status().code(), absl::StatusCode::kUnavailable);
}

TEST(RendezvousTest, WorksFromManyThreads) {
  constexpr uint32_t kSize = 8;
  Rendezvous rendezvous;
  for (int round = 0; round < 20; ++round) {
    std::vector<Result> results(kSize);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kSize; ++rank) {
      threads.emplace_back([&, rank] {
        Join(&rendezvous,
             Member("g", rank, kSize, rank == 0 ? absl::StrCat(round) : ""),
             &results[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Result& result : results) {
      EXPECT_EQ(IdOf(result), absl::StrCat(round));
    }
  }
}

}  // namespace
}  // namespace ballast
