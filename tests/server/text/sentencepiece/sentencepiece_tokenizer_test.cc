// Compares with the ids of SentencePiece's own package and of Hugging Face, as
// written by make_vectors.py.
#include "server/text/sentencepiece/sentencepiece_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "server/sample/data_fault.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Path(const std::string& name) {
  return "tests/server/text/sentencepiece/testdata/" + name;
}

std::unique_ptr<Tokenizer> Make(const std::string& name) {
  auto tokenizer = MakeSentencePieceTokenizer(ReadFile(Path(name + ".model")));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

struct Vectors {
  const char* name;
  // True if each piece covers its own bytes of the text, except for the space
  // that the model may prefix. (If a symbol has spaces, the library attributes
  // all of them to the last piece.)
  bool lossless;
};

class SentencePieceVectorsTest : public ::testing::TestWithParam<Vectors> {
 protected:
  const nlohmann::json vectors_ =
      ReadJsonOrFail(Path(std::string(GetParam().name) + ".ids.json"));
  const std::unique_ptr<Tokenizer> tokenizer_ = Make(GetParam().name);
};

TEST_P(SentencePieceVectorsTest, IdsEqualThePackages) {
  ASSERT_NE(tokenizer_, nullptr);
  ASSERT_GT(vectors_.size(), 300u);
  for (const auto& vector : vectors_) {
    EXPECT_EQ(EncodeOrFail(*tokenizer_, vector[0]),
              vector[1].get<std::vector<int32_t>>())
        << vector[0];
  }
}

TEST_P(SentencePieceVectorsTest, EndsCoverTheText) {
  ASSERT_NE(tokenizer_, nullptr);
  for (const auto& vector : vectors_) {
    const std::string text = vector[0];
    SCOPED_TRACE(text);
    std::vector<int32_t> ids;
    std::vector<size_t> ends;
    ASSERT_TRUE(tokenizer_->EncodeWithEnds(text, &ids, &ends).ok());
    ASSERT_EQ(ends.size(), ids.size());
    size_t begin = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_LE(begin, ends[i]);
      ASSERT_LE(ends[i], text.size());
      std::string spelled;
      ASSERT_TRUE(tokenizer_->Decode({ids[i]}, &spelled).ok());
      const std::string own = text.substr(begin, ends[i] - begin);
      if (GetParam().lossless) {
        // A text may contain the model's space character.
        const std::string plain = absl::StrReplaceAll(own, {{"▁", " "}});
        EXPECT_TRUE(spelled == own || spelled == plain ||
                    (i == 0 && spelled == " " + plain))
            << spelled;
      }
      begin = ends[i];
    }
    if (GetParam().lossless) {
      EXPECT_EQ(begin, text.size());
    }
    if (vector[2].is_null()) continue;
    // The package attributes a whole character to its last byte.
    const auto wanted = vector[2].get<std::vector<size_t>>();
    ASSERT_EQ(wanted.size(), ends.size());
    for (size_t i = 0; i < ends.size(); ++i) {
      const bool is_within =
          i + 1 < ends.size() && wanted[i] <= (i == 0 ? 0 : wanted[i - 1]);
      if (!is_within) {
        EXPECT_EQ(ends[i], wanted[i]) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SentencePieceVectorsTest,
    ::testing::Values(Vectors{"llama", true}, Vectors{"no_prefix", true},
                      Vectors{"symbols", false}, Vectors{"unigram", false}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(SentencePieceTokenizerTest, IdsEqualTransformers) {
  const auto tokenizer = Make("llama");
  ASSERT_NE(tokenizer, nullptr);
  const nlohmann::json vectors = ReadJsonOrFail(Path("llama.hf.json"));
  const std::vector<int32_t> space = EncodeOrFail(*tokenizer, "▁");
  for (const auto& vector : vectors) {
    const std::string text = vector[0];
    auto wanted = vector[1].get<std::vector<int32_t>>();
    // In transformers 5 a space at the beginning replaces the model's own; the
    // package and the tokenizers of transformers 4 that use it have both.
    if (absl::StartsWith(text, " ") || absl::StartsWith(text, "▁")) {
      wanted.insert(wanted.begin(), space[0]);
    }
    EXPECT_EQ(EncodeOrFail(*tokenizer, text), wanted) << text;
  }
}

TEST(SentencePieceTokenizerTest, AContinuedTextTakesNoSpace) {
  const auto tokenizer = Make("llama");
  ASSERT_NE(tokenizer, nullptr);
  std::vector<int32_t> whole;
  ASSERT_TRUE(tokenizer->Encode("<s>The fox", &whole).ok());
  std::vector<int32_t> ids;
  ASSERT_TRUE(tokenizer->EncodeContinued("The fox", &ids, nullptr).ok());
  EXPECT_EQ(ids, std::vector<int32_t>(whole.begin() + 1, whole.end()));
  EXPECT_NE(ids, EncodeOrFail(*tokenizer, "The fox"));
  const auto without = Make("no_prefix");
  ASSERT_NE(without, nullptr);
  ids.clear();
  ASSERT_TRUE(without->EncodeContinued("The fox", &ids, nullptr).ok());
  EXPECT_EQ(ids, EncodeOrFail(*without, "The fox"));
}

TEST(SentencePieceTokenizerTest, BytesOfACharacterHaveSuccessiveEnds) {
  const auto tokenizer = Make("llama");
  ASSERT_NE(tokenizer, nullptr);
  std::vector<int32_t> ids;
  std::vector<size_t> ends;
  ASSERT_TRUE(tokenizer->EncodeWithEnds("a😀", &ids, &ends).ok());
  EXPECT_THAT(ends, ElementsAre(1, 2, 3, 4, 5));
  std::string text;
  ASSERT_TRUE(tokenizer->Decode(ids, &text).ok());
  EXPECT_EQ(text, " a😀");
}

TEST(SentencePieceTokenizerTest, KnowsItsSymbols) {
  const auto tokenizer = Make("symbols");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->SpecialTokenId("<unk>"), 0);
  EXPECT_EQ(tokenizer->SpecialTokenId("<s>"), 1);
  EXPECT_EQ(tokenizer->SpecialTokenId("<pad>"), 3);
  EXPECT_TRUE(tokenizer->SpecialTokenId("<|c|>"));
  EXPECT_TRUE(tokenizer->SpecialTokenId("<|im_start|>"));
  EXPECT_FALSE(tokenizer->SpecialTokenId("The"));
  ASSERT_TRUE(tokenizer->model_ids());
  EXPECT_EQ(tokenizer->model_ids()->end_of_text, 2);
  EXPECT_EQ(tokenizer->model_ids()->pad, 3);
  EXPECT_EQ(Make("llama")->model_ids()->pad, -1);
}

TEST(SentencePieceTokenizerTest, DigestsTellModelsApart) {
  EXPECT_EQ(Make("llama")->digest(), Make("llama")->digest());
  EXPECT_NE(Make("llama")->digest(), Make("symbols")->digest());
}

TEST(SentencePieceTokenizerTest, RefusesUnsupportedSettings) {
  // Appended to a model, a trainer_spec with treat_whitespace_as_suffix = true
  // overrides the model's own.
  const std::string model =
      ReadFile(Path("llama.model")) + "\x12\x03\xc0\x01\x01";
  const absl::Status status = MakeSentencePieceTokenizer(model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("trainer_spec.treat_whitespace_as_suffix"));
  const auto tokenizer = Make("llama");
  ASSERT_NE(tokenizer, nullptr);
  std::vector<int32_t> ids;
  EXPECT_THAT(std::string(tokenizer->Encode("ab\xff", &ids).message()),
              HasSubstr("2"));
  std::string text;
  EXPECT_EQ(tokenizer->Decode({1'000'000}, &text).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tokenizer->Decode({-1}, &text).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SentencePieceTokenizerTest, ManyThreadsEncodeAtOnce) {
  const auto tokenizer = Make("llama");
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<int32_t> wanted =
      EncodeOrFail(*tokenizer, "The quick brown fox 😀");
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        EXPECT_EQ(EncodeOrFail(*tokenizer, "The quick brown fox 😀"), wanted);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Damaged and hostile models are refused or encode something; at worst their
// own process ends.

constexpr char kText[] = "The fox <|im_start|> ﬁ ½ 😀 <s> 12\n\n  x";

// True if `model` is accepted. `text` is then encoded, successfully or not.
bool Survives(const std::string& model, const std::string& text) {
  const auto tokenizer = MakeSentencePieceTokenizer(model);
  if (!tokenizer.ok()) {
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument)
        << tokenizer.status();
    return false;
  }
  std::vector<int32_t> ids;
  std::vector<size_t> ends;
  const absl::Status status = (*tokenizer)->EncodeWithEnds(text, &ids, &ends);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return true;
  }
  EXPECT_EQ(ends.size(), ids.size());
  std::string decoded;
  EXPECT_TRUE((*tokenizer)->Decode(ids, &decoded).ok());
  return true;
}

class HostileModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string model_ =
      ReadFile(std::string("tests/server/text/sentencepiece/testdata/") +
               GetParam() + ".model");
  std::mt19937 random_{5};
};

TEST_P(HostileModelTest, SurvivesAnyCut) {
  EXPECT_TRUE(Survives(model_, kText));
  for (int round = 0; round < 30; ++round) {
    Survives(model_.substr(0, random_() % model_.size()), kText);
  }
}

TEST_P(HostileModelTest, SurvivesChangedBytes) {
  int models = 0;
  for (int round = 0; round < 60; ++round) {
    std::string damaged = model_;
    for (int flip = 0; flip < 1 << round % 6; ++flip) {
      damaged[random_() % damaged.size()] = static_cast<char>(random_());
    }
    models += Survives(damaged, kText) ? 1 : 0;
  }
  // If all models were refused, only parsing would be tested.
  EXPECT_GT(models, 5);
}

// The library trusts the model's table of character replacements.
TEST_P(HostileModelTest, SurvivesAnotherEnd) {
  const size_t tail = std::min<size_t>(model_.size() / 4, 1500);
  for (int round = 0; round < 40; ++round) {
    std::string damaged = model_;
    for (int flip = 0; flip < 8; ++flip) {
      damaged[damaged.size() - 1 - random_() % tail] =
          static_cast<char>(random_());
    }
    Survives(damaged, kText);
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostileModelTest,
                         ::testing::Values("llama", "symbols", "unigram"),
                         [](const auto& info) { return info.param; });

TEST(HostileBytesTest, AreNotAModel) {
  std::mt19937 random(6);
  for (int round = 0; round < 30; ++round) {
    std::string bytes(random() % 3000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_FALSE(Survives(bytes, kText));
  }
}

TEST(HostileTextTest, SurvivesLongTextsOfOneCharacter) {
  const std::string model =
      ReadFile("tests/server/text/sentencepiece/testdata/llama.model");
  for (const char* unit : {"a", " ", "😀", "<s>", "▁"}) {
    std::string text;
    while (text.size() < 200'000) text += unit;
    EXPECT_TRUE(Survives(model, text));
  }
}

}  // namespace

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ModelBytes() {
  return ReadFile("tests/server/text/sentencepiece/testdata/llama.model");
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
