#include "trainer_shim/host/gloo_communicator.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace ballast
