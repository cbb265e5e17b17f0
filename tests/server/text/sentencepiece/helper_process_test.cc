#include "server/text/sentencepiece/helper_process.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ModelBytes() {
  return ReadFileOrFail("tests/server/text/sentencepiece/testdata/llama.model");
}

// The processes whose parent is `parent`.
std::set<pid_t> ChildrenOf(pid_t parent) {
  std::set<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    pid_t id;
    std::string name;
    char state;
    pid_t its_parent;
    // "ballast-sentenc" has no space.
    if (file >> id >> name >> state >> its_parent && its_parent == parent &&
        state != 'Z') {
      children.insert(id);
    }
  }
  return children;
}

class SentencePieceHelperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto helper = SentencePieceHelper::Start(ModelBytes(), true);
    ASSERT_TRUE(helper.ok()) << helper.status();
    helper_ = *std::move(helper);
    const std::set<pid_t> children = ChildrenOf(getpid());
    ASSERT_EQ(children.size(), 1u);
    process_ = *children.begin();
  }

  // Encodes three stretches; the ids must equal those of the first call.
  void ExpectEncodes() {
    SentencePieceHelper::Encoded encoded;
    const absl::Status status = helper_->Encode(
        {{"The fox", false}, {"", false}, {"fox", true}}, &encoded);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(encoded.counts.size(), 3u);
    EXPECT_EQ(encoded.counts[1], 0u);
    EXPECT_EQ(encoded.ids.size(), encoded.counts[0] + encoded.counts[2]);
    EXPECT_EQ(encoded.ends.back(), 3u);
    if (ids_.empty()) ids_ = encoded.ids;
    EXPECT_EQ(encoded.ids, ids_);
  }

  std::unique_ptr<SentencePieceHelper> helper_;
  pid_t process_ = -1;
  std::vector<int32_t> ids_;
};

TEST_F(SentencePieceHelperTest, OneProcessServesOneThread) {
  for (int round = 0; round < 10; ++round) ExpectEncodes();
  EXPECT_EQ(ChildrenOf(process_).size(), 1u);
}

TEST_F(SentencePieceHelperTest, AProcessThatIsKilledIsReplaced) {
  ExpectEncodes();
  for (int round = 0; round < 3; ++round) {
    for (const pid_t worker : ChildrenOf(process_)) kill(worker, SIGKILL);
    ExpectEncodes();
  }
}

TEST_F(SentencePieceHelperTest, TheProcessThatHoldsTheModelIsReplacedToo) {
  ExpectEncodes();
  // Its children end with it.
  kill(process_, SIGKILL);
  ExpectEncodes();
  EXPECT_FALSE(ChildrenOf(getpid()).contains(process_));
}

TEST_F(SentencePieceHelperTest, SurvivesSignalsToTheProcessGroup) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) kill(process_, signal);
  ExpectEncodes();
  EXPECT_EQ(*ChildrenOf(getpid()).begin(), process_);
}

TEST_F(SentencePieceHelperTest, LeavesNoProcessBehind) {
  ExpectEncodes();
  const std::set<pid_t> workers = ChildrenOf(process_);
  ASSERT_FALSE(workers.empty());
  helper_.reset();
  EXPECT_TRUE(ChildrenOf(getpid()).empty());
  EXPECT_NE(kill(process_, 0), 0);  // it has been reaped
}

TEST_F(SentencePieceHelperTest, EndsOfWhiteSpaceAndBytesStayInTheStretch) {
  SentencePieceHelper::Encoded encoded;
  ASSERT_TRUE(helper_->Encode({{"  😀 ", false}}, &encoded).ok());
  uint32_t last = 0;
  for (const uint32_t end : encoded.ends) {
    EXPECT_LE(last, end);
    last = end;
  }
  EXPECT_EQ(last, 7u);
}

TEST(SentencePieceHelperStartTest, NamesTheFaultOfAModel) {
  for (const std::string& model :
       {std::string(), std::string("nonsense"), ModelBytes().substr(0, 1000)}) {
    const absl::Status status =
        SentencePieceHelper::Start(model, true).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("SentencePiece"));
  }
  EXPECT_TRUE(ChildrenOf(getpid()).empty());
}

// A server with closed standard streams uses their descriptors for other files.
TEST(SentencePieceHelperStartTest, NeedsNoStandardStreams) {
  EXPECT_EXIT(
      {
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        const auto helper = SentencePieceHelper::Start(ModelBytes(), false);
        SentencePieceHelper::Encoded encoded;
        const bool encodes =
            helper.ok() && (*helper)->Encode({{"x", false}}, &encoded).ok();
        _exit(encodes ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ballast
