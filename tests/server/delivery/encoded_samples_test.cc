// Blocks with images that travel encoded.

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/aligned_buffer.h"
#include "proto/block/block_view.h"
#include "server/delivery/block.h"
#include "server/delivery/file_sample_builder.h"
#include "server/delivery/payload.h"
#include "server/delivery/sample_reader.h"
#include "server/media/image/image.h"
#include "server/sample/index_format.h"
#include "server/schedule/scheduler.h"
#include "server/text/model_text.h"
#include "server/text/model_tokenizer.h"
#include "tests/fakes/fake_sample_source.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/made_jpegs.h"

namespace ballast {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint32_t kEncodedSamples = 8;
// The sample whose images 0 and 2 travel encoded; image 1 is a PNG.
constexpr uint64_t kEncoded = 3;

v1::Config Config() {
  v1::Config config = JobConfig(1, 1, kEncodedSamples, kEncodedSamples);
  config.mutable_order()->set_shuffle(false);
  return config;
}

class EncodedSamplesTest : public ::testing::Test {
 protected:
  EncodedSamplesTest() { Mark(ImageCheckResult::kClean); }

  // Makes images 0 and 2 JPEGs that the index marks.
  void Mark(ImageCheckResult check) {
    FakeSourceIndex::Sample& indexed =
        *source_.mutable_index()->mutable_sample(kEncoded);
    indexed.marks.assign(3, ImageMark::Refused(EngineRefusal::kNotJpeg));
    indexed.content_hashes.assign(3, 0);
    for (const uint32_t i : {0, 2}) {
      const ImageSize size = indexed.images[i];
      std::string file = MakeJpeg({.width = size.width, .height = size.height});
      indexed.marks[i] = ImageMark::Marked(file.size(), check);
      indexed.content_hashes[i] = XXH3_64bits(file.data(), file.size());
      source_.mutable_sample(kEncoded)->media[i].bytes = std::move(file);
    }
  }
  std::string& file(uint32_t image) {
    return source_.mutable_sample(kEncoded)->media[image].bytes;
  }

  // Builds the one block of `module`, in memory full of garbage.
  BlockView Build(v1::Module module) {
    const auto scheduler = *Scheduler::Create(config_, {&source_.index()});
    builder_ = std::make_unique<FileSampleBuilder>(
        config_, FileSampleBuilder::Job{.sources = {&source_},
                                        .text = text_.get(),
                                        .instruments = &instruments_});
    v1::Role role;
    role.set_module(module);
    PlannedBlock planned =
        *PlanForBuilding(*scheduler->Schedule(0), 0, role, v1::DELIVERY_OFF,
                         {config_.model().patch(), 3});
    const BlockPlan plan = planned.plan;
    memory_ = *AlignedBuffer::Create(plan.bytes());
    const absl::Span<uint8_t> bytes = memory_.bytes().first(plan.bytes());
    std::fill(bytes.begin(), bytes.end(), 0xAA);
    absl::Status status = absl::UnknownError("not finished");
    BlockBuild build(std::move(planned), builder_.get(), bytes,
                     /*wants_checksum=*/false,
                     [&](const auto& checksum) { status = checksum.status(); });
    if (build.Start()) {
      for (uint32_t i = 0; i < build.items(); ++i) build.Run(i);
    }
    EXPECT_TRUE(status.ok()) << status;
    BlockView view = *BlockView::Parse(bytes);
    EXPECT_TRUE(view.Matches(plan).ok());
    return view;
  }

  static absl::Span<const uint8_t> GetData(const BlockView& view,
                                           const SampleRecord& sample,
                                           uint32_t image) {
    const ImageRecord& record = view.images(sample)[image];
    return view.payload(sample).subspan(record.data, ImageBytes(record));
  }

  // Expects a placeholder in place of kEncoded, in both modules.
  void ExpectPlaceholder(absl::string_view reason) {
    const BlockView view = Build(v1::MODULE_VISION);
    const SampleRecord& sample = view.samples()[kEncoded];
    EXPECT_EQ(sample.flags, kSampleIsPlaceholder);
    for (uint32_t i = 0; i < 3; ++i) {
      const bool encoded = view.images(sample)[i].encoded_bytes != 0;
      EXPECT_THAT(GetData(view, sample, i), Each(encoded ? 0 : 128));
    }
    ASSERT_EQ(builder_->bad_samples().List().size(), 1u);
    EXPECT_THAT(builder_->bad_samples().List()[0].reason, HasSubstr(reason));
    // Its own builder: language finds the fault by itself.
    const BlockView language = Build(v1::MODULE_LANGUAGE);
    EXPECT_EQ(language.samples()[kEncoded].flags, kSampleIsPlaceholder);
  }

  v1::Config config_ = Config();
  FakeSampleSource source_{config_, kEncodedSamples};
  const std::unique_ptr<Tokenizer> tokenizer_ = *MakeTokenizer("bytes");
  const std::unique_ptr<const ModelText> text_ =
      ModelText::Create(config_.model(), tokenizer_.get()).value();
  BuildInstruments instruments_;
  std::unique_ptr<FileSampleBuilder> builder_;
  AlignedBuffer memory_;
};

TEST_F(EncodedSamplesTest, TheBlockHoldsTheFilesBytes) {
  const BlockView view = Build(v1::MODULE_VISION);
  const SampleRecord& sample = view.samples()[kEncoded];
  ASSERT_EQ(sample.num_images, 3u);
  EXPECT_EQ(sample.flags, 0u);
  for (const uint32_t i : {0, 2}) {
    EXPECT_EQ(view.images(sample)[i].encoded_bytes, file(i).size());
    const absl::Span<const uint8_t> data = GetData(view, sample, i);
    EXPECT_EQ(std::string(data.begin(), data.end()), file(i));
  }
  const ImageRecord& png = view.images(sample)[1];
  EXPECT_EQ(png.encoded_bytes, 0u);
  const RgbImage full = *ImageDecoder().Decode(file(1));
  std::vector<uint8_t> wanted(PixelBytes(png));
  ASSERT_TRUE(
      Resize(full, Resampling(), png.width, png.height, absl::MakeSpan(wanted))
          .ok());
  EXPECT_EQ(GetData(view, sample, 1), absl::MakeConstSpan(wanted));
  uint64_t end = 0;
  for (const ImageRecord& image : view.images(sample)) {
    EXPECT_THAT(view.payload(sample).subspan(end, image.data - end), Each(0));
    end = image.data + ImageBytes(image);
  }
  EXPECT_THAT(view.payload(sample).subspan(end), Each(0));
  EXPECT_EQ(instruments_.images_encoded.value(), 2u);
  // Samples 1, 2, 5, 6 and 7 have 1, 2, 1, 2 and 3 images, sample 3 a PNG.
  EXPECT_EQ(instruments_.vision.media[MediumKind::kImage].value(), 10u);
}

TEST_F(EncodedSamplesTest, LanguageReadsTheFilesAndDecodesOnlyTheOthers) {
  const BlockView view = Build(v1::MODULE_LANGUAGE);
  EXPECT_EQ(view.samples()[kEncoded].flags, 0u);
  EXPECT_EQ(instruments_.check.media[MediumKind::kImage].value(), 10u);
  EXPECT_EQ(instruments_.images_encoded.value(), 0u);
}

TEST_F(EncodedSamplesTest, AChangedFileIsADataFault) {
  file(2)[file(2).size() / 2] ^= 1;
  ExpectPlaceholder("image 2");
}

// As above: model.decode makes no difference.
TEST_F(EncodedSamplesTest, AChangedFileIsADataFaultOnTheHostToo) {
  file(2)[file(2).size() / 2] ^= 1;
  source_.mutable_index()->set_rule(EncodedRule::kNone);
  ExpectPlaceholder("image 2");
}

TEST_F(EncodedSamplesTest, AFileOfAnotherLengthIsADataFault) {
  file(0) += "more";
  ExpectPlaceholder("image 0");
}

TEST_F(EncodedSamplesTest, UncheckedFilesTravelOnlyIfAccepted) {
  Mark(ImageCheckResult::kUnchecked);
  EXPECT_EQ(Build(v1::MODULE_VISION).images()[0].encoded_bytes, 0u);
  EXPECT_EQ(instruments_.images_encoded.value(), 0u);
  source_.mutable_index()->set_rule(EncodedRule::kUnchecked);
  Build(v1::MODULE_VISION);
  EXPECT_EQ(instruments_.images_encoded.value(), 2u);
}

// Nothing is known of an unchecked file's bytes but its header.
TEST_F(EncodedSamplesTest, AnUncheckedFileMustStillBeForEngines) {
  Mark(ImageCheckResult::kUnchecked);
  source_.mutable_index()->set_rule(EncodedRule::kUnchecked);
  file(0).back() = 0;
  ExpectPlaceholder("no end marker");
}

TEST(EncodedImageTest, ComparesLengthAndHash) {
  const std::string file = "a file of some bytes";
  const auto fault = [](absl::string_view bytes, uint32_t length,
                        std::optional<uint64_t> hash) {
    const auto found = FindEncodedImageFault(bytes, length, hash);
    return found.has_value() ? found->reason() : "";
  };
  EXPECT_EQ(fault(file, 20, Checksum(file)), "");
  EXPECT_EQ(fault(file, 20, std::nullopt), "");
  EXPECT_THAT(fault(file, 21, std::nullopt),
              HasSubstr("file of 20 bytes, the index has 21"));
  std::string changed = file;
  changed[7] ^= 1;
  EXPECT_EQ(fault(changed, 20, std::nullopt), "");
  EXPECT_THAT(fault(changed, 20, Checksum(file)),
              HasSubstr("when `index` read it"));
}

TEST(ImageCheckCacheTest, ReturnsTheLastCheck) {
  ImageCheckCache cache;
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 7), std::nullopt);
  cache.Put(v1::SPLIT_TRAIN, 7, SampleCheck{DataFault("cut")});
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 7), SampleCheck{DataFault("cut")});
  cache.Put(v1::SPLIT_TRAIN, 7, SampleCheck{});
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 7), SampleCheck{});
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 7 + 64), std::nullopt);
}

// Positions of two splits are those of different samples.
TEST(ImageCheckCacheTest, KeepsSplitsApart) {
  ImageCheckCache cache;
  cache.Put(v1::SPLIT_VALID, 7, SampleCheck{DataFault("cut")});
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 7), std::nullopt);
  cache.Put(v1::SPLIT_TRAIN, 7, SampleCheck{});
  EXPECT_EQ(cache.Get(v1::SPLIT_VALID, 7), SampleCheck{DataFault("cut")});
}

TEST(ImageCheckCacheTest, RemembersTheLatestPositions) {
  ImageCheckCache cache;
  for (uint64_t position = 0; position <= ImageCheckCache::kMaxCount;
       ++position) {
    cache.Put(v1::SPLIT_TRAIN, position, SampleCheck{});
  }
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 0), std::nullopt);
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 1), SampleCheck{});
}

}  // namespace
}  // namespace ballast
