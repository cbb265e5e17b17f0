// Facts of videos that an index is built from.

#include "server/job/index_sources.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "common/small_file.h"
#include "server/job/job_setup.h"
#include "server/job/template_comparison.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "server/text/model_tokenizer.h"
#include "server/text/template/template_renderer.h"

namespace ballast {
namespace {

RawMedium VideoOf(int fd) {
  RawMedium video;
  EXPECT_GE(fd, 0);
  video.fd = std::make_shared<const OwnedFd>(fd);
  struct stat info = {};
  EXPECT_EQ(fstat(fd, &info), 0);
  video.size = static_cast<uint64_t>(info.st_size);
  return video;
}

class VideoProbeTest : public ::testing::Test {
 protected:
  static std::string GetPath(const std::string& name) {
    return ::testing::TempDir() + "/" + name;
  }
  static void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(GetPath(name), std::ios::binary) << bytes;
  }
  static RawMedium Open(const std::string& name) {
    return VideoOf(open(GetPath(name).c_str(), O_RDONLY | O_CLOEXEC));
  }

  // Facts whose width is the size of the video.
  StreamProbe Probe(size_t most) {
    return MakeVideoProbe(
        [this](const VideoBytes& video) -> absl::StatusOr<VideoFacts> {
          ++reads_;
          if (!failure_.ok()) return failure_;
          VideoFacts facts;
          facts.width = static_cast<uint32_t>(video.bytes);
          return facts;
        },
        most);
  }

  int reads_ = 0;
  absl::Status failure_;
};

TEST_F(VideoProbeTest, ReadsAFileOnce) {
  Write("a", "1234");
  const StreamProbe probe = Probe(10);
  EXPECT_EQ(probe(Open("a"))->facts.width, 4u);
  EXPECT_EQ(probe(Open("a"))->facts.width, 4u);
  EXPECT_EQ(reads_, 1);
  // A part of it is another video.
  RawMedium part = Open("a");
  part.offset = 1;
  part.size = 3;
  EXPECT_EQ(probe(part)->facts.width, 3u);
  EXPECT_EQ(reads_, 2);
  // So are other bytes.
  Write("a", "12345");
  EXPECT_EQ(probe(Open("a"))->facts.width, 5u);
  EXPECT_EQ(reads_, 3);
}

// 1,800 frames of 8K are 60,000 million pixels.
TEST_F(VideoProbeTest, AVideoWhoseFramesTakeMinutesIsADataFault) {
  Write("a", "1234");
  uint32_t keys = 1800;
  const auto read = [&](const VideoBytes&) -> absl::StatusOr<VideoFacts> {
    ++reads_;
    VideoFacts facts;
    facts.width = 7680;
    facts.height = 4320;
    for (uint32_t i = 0; i < 1800; ++i) {
      facts.table.frames.push_back({i, i, i / keys * keys});
    }
    return facts;
  };
  const StreamProbe probe = MakeVideoProbe(read, 10);
  EXPECT_TRUE(IsDataFault(probe(Open("a")).status()));
  EXPECT_TRUE(IsDataFault(probe(Open("a")).status()));
  EXPECT_EQ(reads_, 1);
  keys = 600;
  EXPECT_TRUE(MakeVideoProbe(read, 10)(Open("a")).ok());
}

TEST_F(VideoProbeTest, ForgetsTheOldest) {
  const StreamProbe probe = Probe(2);
  for (const char* name : {"a", "b", "c"}) {
    Write(name, name);
    EXPECT_TRUE(probe(Open(name)).ok());
  }
  EXPECT_TRUE(probe(Open("c")).ok());
  EXPECT_TRUE(probe(Open("b")).ok());
  EXPECT_EQ(reads_, 3);
  EXPECT_TRUE(probe(Open("a")).ok());
  EXPECT_EQ(reads_, 4);
}

TEST_F(VideoProbeTest, RemembersFaultsOfAFileAlone) {
  Write("a", "1");
  const StreamProbe probe = Probe(10);
  failure_ = absl::UnavailableError("the disk");
  EXPECT_EQ(probe(Open("a")).status(), failure_);
  // The machine's fault ends the build.
  failure_ = absl::FailedPreconditionError("no libraries");
  EXPECT_TRUE(absl::IsUnavailable(probe(Open("a")).status()));
  failure_ = absl::DeadlineExceededError("silence");
  EXPECT_TRUE(absl::IsInvalidArgument(probe(Open("a")).status()));
  EXPECT_EQ(reads_, 3);
  failure_ = absl::OkStatus();
  EXPECT_EQ(probe(Open("a")).status().message(), "silence");
  EXPECT_EQ(reads_, 3);
}

// The number of such a file is given to the next one.
TEST_F(VideoProbeTest, RemembersNothingThatOnlyMemoryHolds) {
  const StreamProbe probe = Probe(10);
  const RawMedium video = VideoOf(memfd_create("video", MFD_CLOEXEC));
  EXPECT_TRUE(probe(video).ok());
  EXPECT_TRUE(probe(video).ok());
  EXPECT_EQ(reads_, 2);
}

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FirstDifferenceTest, ShowsBothTexts) {
  EXPECT_EQ(FirstDifference("a b", "a b"), "");
  EXPECT_EQ(FirstDifference("a bc\n", "a bd"),
            "at byte 3 the checkpoint's has \"c\\n\", the built-in \"d\"");
  EXPECT_EQ(FirstDifference("a", "a b"),
            "at byte 1 the checkpoint's has its end, the built-in \" b\"");
  EXPECT_EQ(FirstDifference("", "b"),
            "at byte 0 the checkpoint's has its end, the built-in \"b\"");
}

TEST(TemplateComparisonTest, SaysWhereTheCheckpointWritesOtherwise) {
  const auto trial = TemplateRenderer::Create({.text = "x"}, {});
  if (!trial.ok()) GTEST_SKIP() << trial.status().message();
  const std::string folder = ::testing::TempDir() + "/compared";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(
      "tests/server/text/testdata/family_chats.tokenizer.json",
      folder + "/tokenizer.json",
      std::filesystem::copy_options::overwrite_existing);
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  model.set_chat_template("chatml");
  model.set_tokenizer(folder + "/tokenizer.json");
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto text = ModelText::Create(model, tokenizer->get());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(TemplateComparison::Create(text->get(), tokenizer->get()), nullptr);
  const std::string equal =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
      "{%- if m.content is string %}{{ m.content }}{% else %}"
      "{%- for p in m.content %}{{ p.text if p.type == 'text' else "
      "'<|vision_start|><|image_pad|><|vision_end|>' }}{% endfor %}{% endif %}"
      "{{- '<|im_end|>\\n' }}{% endfor %}";
  RawSample sample;
  sample.name = "chat.jsonl:3";
  sample.text = R"({"messages": [{"role": "user", "content": "<image>Why?"},
                                 {"role": "assistant", "content": "So."}]})";
  const auto difference = [&](const std::string& own) {
    std::ofstream(folder + "/chat_template.jinja") << own;
    const auto comparison =
        TemplateComparison::Create(text->get(), tokenizer->get());
    EXPECT_NE(comparison, nullptr);
    comparison->Look(sample, 1);
    return comparison->TakeDifference();
  };
  EXPECT_EQ(difference(equal), "");
  EXPECT_THAT(
      difference("{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}" + equal),
      AllOf(HasSubstr("chatml writes chat.jsonl:3 otherwise"),
            HasSubstr("at byte 12 the checkpoint's has \"system\\nBe kind."),
            HasSubstr("the built-in \"user\\n<image>Why?"),
            HasSubstr("name chat_template: checkpoint")));
  EXPECT_THAT(difference("{{ raise_exception('No.') }}"), HasSubstr("No."));
}

// A model of audio alone leaves out samples with images, which one of both
// takes.
TEST(IndexKeyTest, SaysWhetherTheModelTakesImages) {
  v1::ModelProfile both = *FindProfile("qwen2_audio");
  *both.mutable_images() = FindProfile("llava1_5")->images();
  const auto tokenizer = MakeTokenizer("bytes");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  v1::Config config;
  config.mutable_model()->set_profile("qwen2_audio");
  const IndexKey without = GetIndexKey(config, **tokenizer);
  config.mutable_model()->set_profile(AddProfile(both));
  EXPECT_NE(GetIndexKey(config, **tokenizer).sizes, without.sizes);
}

}  // namespace
}  // namespace ballast
