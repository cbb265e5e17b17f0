#include "server/text/sentencepiece/sentencepiece_helper.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "server/corpus/data_fault.h"
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
  explicit SentencePieceHelperTest(absl::Duration patience = absl::Seconds(60))
      : patience_(patience) {}

  void SetUp() override {
    auto helper = SentencePieceHelper::Start(ModelBytes(), true, patience_);
    ASSERT_TRUE(helper.ok()) << helper.status();
    helper_ = *std::move(helper);
    const std::set<pid_t> children = ChildrenOf(getpid());
    ASSERT_EQ(children.size(), 1u);
    holder_ = *children.begin();
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

  // The processes that encode.
  std::set<pid_t> Encoders() const {
    std::set<pid_t> encoders = ChildrenOf(getpid());
    encoders.erase(holder_);
    return encoders;
  }

  const absl::Duration patience_;
  std::unique_ptr<SentencePieceHelper> helper_;
  pid_t holder_ = -1;  // of the model
  std::vector<int32_t> ids_;
};

TEST_F(SentencePieceHelperTest, OneProcessServesOneThread) {
  for (int round = 0; round < 10; ++round) ExpectEncodes();
  EXPECT_EQ(Encoders().size(), 1u);
}

TEST_F(SentencePieceHelperTest, AProcessThatIsKilledIsReplaced) {
  ExpectEncodes();
  for (int round = 0; round < 3; ++round) {
    for (const pid_t encoder : Encoders()) kill(encoder, SIGKILL);
    ExpectEncodes();
  }
}

TEST_F(SentencePieceHelperTest, TheProcessThatHoldsTheModelIsReplacedToo) {
  ExpectEncodes();
  kill(holder_, SIGKILL);
  ExpectEncodes();  // by the process that it had forked
  for (const pid_t encoder : Encoders()) kill(encoder, SIGKILL);
  ExpectEncodes();
  EXPECT_FALSE(ChildrenOf(getpid()).contains(holder_));
}

// A placeholder instead of the text would be other data than on other servers.
TEST_F(SentencePieceHelperTest, KilledProcessesAreNeverAFaultOfTheText) {
  std::atomic<bool> done = false;
  std::thread killer([&] {
    while (!done) {
      for (const pid_t child : ChildrenOf(getpid())) kill(child, SIGKILL);
    }
  });
  std::string text;  // long enough to be killed over
  while (text.size() < 60'000) text += "The quick brown fox. ";
  int encoded = 0;
  for (int i = 0; i < 100; ++i) {
    SentencePieceHelper::Encoded ids;
    const absl::Status status = helper_->Encode({{text, false}}, &ids);
    EXPECT_FALSE(IsDataFault(status)) << status;
    encoded += status.ok();
  }
  done = true;
  killer.join();
  std::cout << encoded << " of 100 texts were encoded all the same\n";
  ExpectEncodes();
}

TEST_F(SentencePieceHelperTest, SurvivesSignalsToTheProcessGroup) {
  ExpectEncodes();
  const std::set<pid_t> before = ChildrenOf(getpid());
  for (const pid_t child : before) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) kill(child, signal);
  }
  ExpectEncodes();
  EXPECT_EQ(ChildrenOf(getpid()), before);
}

TEST_F(SentencePieceHelperTest, LeavesNoProcessBehind) {
  ExpectEncodes();
  const std::set<pid_t> children = ChildrenOf(getpid());
  EXPECT_EQ(children.size(), 2u);
  helper_.reset();
  for (const pid_t child : children) {
    EXPECT_NE(kill(child, 0), 0);  // it has been reaped
  }
}

class ImpatientTest : public SentencePieceHelperTest {
 protected:
  ImpatientTest() : SentencePieceHelperTest(absl::Seconds(2)) {}
};

TEST_F(ImpatientTest, StoppedProcessesAreReplaced) {
  ExpectEncodes();
  for (const pid_t child : ChildrenOf(getpid())) kill(child, SIGSTOP);
  ExpectEncodes();
  ExpectEncodes();
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
