#include "server/serve/security/server_security.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Verdict = TokenList::Verdict;

constexpr char kFile[] =
    "# tokens of two jobs, and one for all\n"
    "\n"
    "token-of-night-run-1 night\n"
    "token-of-day-run-000 day night.2\r\n"
    "\ttoken-of-everybody\n"
    "token-of-day-run-000   weekly";

Verdict Check(const std::string& job, const std::string& token) {
  const auto list = TokenList::Parse(kFile, "tokens", job);
  EXPECT_TRUE(list.ok()) << list.status();
  return list->Check(token);
}

TEST(TokenList, ATokenIsForItsJobsOrForAny) {
  EXPECT_EQ(Check("night", "token-of-night-run-1"), Verdict::kAllowed);
  EXPECT_EQ(Check("day", "token-of-night-run-1"), Verdict::kOtherJob);
  EXPECT_EQ(Check("", "token-of-night-run-1"), Verdict::kOtherJob);
  for (const char* job : {"night", "day", "", "unheard-of"}) {
    EXPECT_EQ(Check(job, "token-of-everybody"), Verdict::kAllowed) << job;
  }
}

TEST(TokenList, ATokenMayHaveSeveralJobsAndLines) {
  for (const char* job : {"day", "night.2", "weekly"}) {
    EXPECT_EQ(Check(job, "token-of-day-run-000"), Verdict::kAllowed) << job;
  }
  EXPECT_EQ(Check("night", "token-of-day-run-000"), Verdict::kOtherJob);
}

TEST(TokenList, AcceptsOnlyWholeTokens) {
  for (const char* token :
       {"", "token-of-night-run-", "token-of-night-run-12", "night", "#",
        "token-of-night-run-1 night", "Token-of-night-run-1"}) {
    EXPECT_EQ(Check("night", token), Verdict::kUnknown) << token;
  }
}

TEST(TokenList, TheServersOwnTokenIsTheFirstOfItsJob) {
  EXPECT_EQ(TokenList::Parse(kFile, "tokens", "day")->own(),
            "token-of-day-run-000");
  EXPECT_EQ(TokenList::Parse(kFile, "tokens", "")->own(), "token-of-everybody");
}

std::string Message(const std::string& text, const std::string& job = "") {
  return std::string(TokenList::Parse(text, "tokens", job).status().message());
}

TEST(TokenList, FaultsNameTheLineButNotTheToken) {
  EXPECT_THAT(Message("# one\nsecret\n"),
              AllOf(HasSubstr("tokens:2: "), HasSubstr("6 bytes"),
                    Not(HasSubstr("secret"))));
  EXPECT_THAT(Message("secret-secret-\"secret\"\n"),
              AllOf(HasSubstr("tokens:1: "), Not(HasSubstr("secret"))));
  EXPECT_THAT(Message("0123456789abcdef job secret/secret=\n"),
              AllOf(HasSubstr("tokens:1: word 3"), Not(HasSubstr("secret"))));
}

TEST(TokenList, RequiresATokenForTheJob) {
  for (const char* text : {"", "# none\n", "0123456789abcdef night\n"}) {
    EXPECT_THAT(Message(text, "day"),
                AllOf(HasSubstr("tokens: "), HasSubstr("day")));
    EXPECT_THAT(Message(text), HasSubstr("security.job is not set"));
  }
}

}  // namespace
}  // namespace ballast
