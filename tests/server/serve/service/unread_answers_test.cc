#include "server/serve/service/unread_answers.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(UnreadAnswersTest, BoundsAClientAndAllOfThem) {
  UnreadAnswers answers({.bytes = 100, .bytes_a_client = 40});
  std::vector<std::shared_ptr<void>> held;
  const auto take = [&](const std::string& client, uint64_t bytes) {
    auto room = answers.Take(client, bytes);
    if (room.ok()) held.push_back(*std::move(room));
    return room.status();
  };
  // An answer takes its bytes twice.
  EXPECT_TRUE(take("a", 10).ok());
  EXPECT_TRUE(take("a", 10).ok());
  const absl::Status refused = take("a", 1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("answers of 40 bytes to a"));
  EXPECT_TRUE(take("b", 20).ok());
  EXPECT_TRUE(take("c", 5).ok());
  EXPECT_EQ(take("c", 6).code(), absl::StatusCode::kResourceExhausted);
  // The first of a client is never refused: it could never have it.
  EXPECT_TRUE(take("d", 1000).ok());
  held.erase(held.begin());
  EXPECT_EQ(take("a", 1).code(), absl::StatusCode::kResourceExhausted);
  held.clear();
  EXPECT_TRUE(take("a", 10).ok());
  EXPECT_TRUE(take("a", 10).ok());
}

}  // namespace
}  // namespace ballast
