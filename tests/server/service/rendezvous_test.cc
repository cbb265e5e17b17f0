#include "server/service/rendezvous.h"

#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using Result = std::optional<absl::StatusOr<std::string>>;

v1::RendezvousRequest Member(const std::string& group, uint32_t rank,
                             uint32_t size, const std::string& id = "") {
  v1::RendezvousRequest request;
  request.set_group(group);
  request.set_rank(rank);
  request.set_size(size);
  request.set_id(id);
  return request;
}

// Joins and keeps what is answered in `result`, which must outlive the answer.
uint64_t Join(Rendezvous* rendezvous, const v1::RendezvousRequest& request,
              Result* result) {
  return rendezvous->Join(request, [result](absl::StatusOr<std::string> id) {
    EXPECT_FALSE(result->has_value()) << "answered twice";
    *result = std::move(id);
  });
}

absl::StatusCode CodeOf(Rendezvous* rendezvous,
                        const v1::RendezvousRequest& request) {
  Result result;
  Join(rendezvous, request, &result);
  return result.has_value() ? result->status().code()
                            : absl::StatusCode::kUnknown;
}

TEST(RendezvousTest, AllLearnWhatRank0Gave) {
  Rendezvous rendezvous;
  std::vector<Result> results(4);
  Join(&rendezvous, Member("g", 1, 4), &results[1]);
  Join(&rendezvous, Member("g", 3, 4), &results[3]);
  EXPECT_FALSE(results[1].has_value());
  Join(&rendezvous, Member("g", 0, 4, "the id"), &results[0]);
  Join(&rendezvous, Member("g", 2, 4), &results[2]);
  for (const Result& result : results) {
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(**result, "the id");
  }
}

TEST(RendezvousTest, AGroupOfOneMeetsItself) {
  Rendezvous rendezvous;
  for (const char* id : {"first", "second"}) {
    Result result;
    Join(&rendezvous, Member("g", 0, 1, id), &result);
    EXPECT_EQ(**result, id);
  }
}

TEST(RendezvousTest, AGroupThatHasMetMayMeetAgain) {
  Rendezvous rendezvous;
  for (const char* id : {"first", "second"}) {
    Result zero, one;
    Join(&rendezvous, Member("g", 1, 2), &one);
    EXPECT_FALSE(one.has_value());
    Join(&rendezvous, Member("g", 0, 2, id), &zero);
    EXPECT_EQ(**zero, id);
    EXPECT_EQ(**one, id);
  }
}

TEST(RendezvousTest, RepeatingIsHarmlessUntilAllAreAnswered) {
  Rendezvous rendezvous;
  for (int i = 0; i < 2; ++i) {
    Result zero, one;
    Join(&rendezvous, Member("g", 0, 3, "id"), &zero);
    Join(&rendezvous, Member("g", 1, 3), &one);
    EXPECT_EQ(**zero, "id");
    EXPECT_EQ(**one, "id");
  }
  EXPECT_EQ(CodeOf(&rendezvous, Member("g", 0, 3, "other")),
            absl::StatusCode::kAlreadyExists);
  Result two;
  Join(&rendezvous, Member("g", 2, 3), &two);
  EXPECT_EQ(**two, "id");
}

TEST(RendezvousTest, ARankThatComesAgainTakesThePlaceOfTheFirst) {
  Rendezvous rendezvous;
  Result first, second, zero;
  const uint64_t ticket = Join(&rendezvous, Member("g", 1, 2), &first);
  Join(&rendezvous, Member("g", 1, 2), &second);
  EXPECT_EQ(first->status().code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(rendezvous.Leave(ticket));
  Join(&rendezvous, Member("g", 0, 2, "id"), &zero);
  EXPECT_EQ(**second, "id");
}

TEST(RendezvousTest, WhoHasLeftIsNotAnswered) {
  Rendezvous rendezvous;
  Result left, zero, one;
  const uint64_t ticket = Join(&rendezvous, Member("g", 1, 2), &left);
  EXPECT_TRUE(rendezvous.Leave(ticket));
  EXPECT_FALSE(rendezvous.Leave(ticket));
  Join(&rendezvous, Member("g", 0, 2, "id"), &zero);
  EXPECT_FALSE(left.has_value());
  const uint64_t answered = Join(&rendezvous, Member("g", 1, 2), &one);
  EXPECT_EQ(**one, "id");
  EXPECT_FALSE(rendezvous.Leave(answered));
}

TEST(RendezvousTest, AGroupThatAllHaveLeftIsForgotten) {
  Rendezvous rendezvous;
  Result left, other;
  EXPECT_TRUE(rendezvous.Leave(Join(&rendezvous, Member("g", 1, 2), &left)));
  Join(&rendezvous, Member("g", 1, 3), &other);  // another size
  EXPECT_FALSE(other.has_value());
}

TEST(RendezvousTest, RefusesWhatMakesNoSense) {
  Rendezvous rendezvous;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(CodeOf(&rendezvous, Member("", 0, 1, "id")), invalid);
  EXPECT_EQ(CodeOf(&rendezvous, Member(std::string(257, 'g'), 0, 1, "id")),
            invalid);
  EXPECT_EQ(CodeOf(&rendezvous, Member("g", 0, 0, "id")), invalid);
  EXPECT_EQ(CodeOf(&rendezvous, Member("g", 2, 2)), invalid);
  EXPECT_EQ(CodeOf(&rendezvous, Member("g", 0, UINT32_MAX, "id")), invalid);
  EXPECT_EQ(CodeOf(&rendezvous, Member("g", 1, 2, "id")), invalid);
  EXPECT_EQ(CodeOf(&rendezvous, Member("g", 0, 2)), invalid);
  EXPECT_EQ(CodeOf(&rendezvous, Member("g", 0, 2, std::string(4097, 'i'))),
            invalid);
}

TEST(RendezvousTest, AllMustSayTheSameSize) {
  Rendezvous rendezvous;
  Result one, two;
  Join(&rendezvous, Member("g", 1, 4), &one);
  Join(&rendezvous, Member("g", 2, 5), &two);
  EXPECT_EQ(two->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(two->status().message()),
              HasSubstr("5 members; others said 4"));
  EXPECT_FALSE(one.has_value());
}

TEST(RendezvousTest, GroupsAreBounded) {
  Rendezvous rendezvous;
  std::vector<Result> results(Rendezvous::kMaxGroups);
  std::vector<uint64_t> tickets;
  for (size_t i = 0; i < results.size(); ++i) {
    tickets.push_back(
        Join(&rendezvous, Member(absl::StrCat("g", i), 1, 2), &results[i]));
  }
  EXPECT_EQ(CodeOf(&rendezvous, Member("more", 1, 2)),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(rendezvous.Leave(tickets[3]));
  Result more;
  Join(&rendezvous, Member("more", 1, 2), &more);
  EXPECT_FALSE(more.has_value());
}

// Groups whose rank 0 came, but some member never did, make room.
TEST(RendezvousTest, TheGroupForgottenLongestGivesWay) {
  Rendezvous rendezvous;
  for (size_t i = 0; i < Rendezvous::kMaxGroups; ++i) {
    Result zero;
    Join(&rendezvous, Member(absl::StrCat("g", i), 0, 2, "id"), &zero);
  }
  Result touched, fresh;
  Join(&rendezvous, Member("g0", 0, 2, "id"), &touched);
  Join(&rendezvous, Member("more", 0, 2, "id"), &fresh);
  EXPECT_EQ(**fresh, "id");
  Result zero, one;
  Join(&rendezvous, Member("g0", 1, 2), &zero);
  EXPECT_EQ(**zero, "id");
  Join(&rendezvous, Member("g1", 1, 2), &one);
  EXPECT_FALSE(one.has_value());  // forgotten: it waits for a new rank 0
}

TEST(RendezvousTest, DrainLetsAllGo) {
  Rendezvous rendezvous;
  Result waiting, late;
  Join(&rendezvous, Member("g", 1, 2), &waiting);
  rendezvous.Drain();
  EXPECT_EQ(waiting->status().code(), absl::StatusCode::kUnavailable);
  Join(&rendezvous, Member("g", 0, 2, "id"), &late);
  EXPECT_EQ(late->status().code(), absl::StatusCode::kUnavailable);
}

TEST(RendezvousTest, FromManyThreads) {
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
      EXPECT_EQ(**result, absl::StrCat(round));
    }
  }
}

}  // namespace
}  // namespace ballast
