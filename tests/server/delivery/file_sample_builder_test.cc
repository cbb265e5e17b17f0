#include "server/delivery/file_sample_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "absl/time/clock.h"
#include "common/aligned_buffer.h"
#include "proto/block/block_layout.h"
#include "proto/block/block_plan.h"
#include "server/delivery/sample_reader.h"
#include "server/media/image/image.h"
#include "server/model/model_profile.h"
#include "server/schedule/scheduler.h"
#include "server/settings/source_fields.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"
#include "tests/fakes/fake_sample_source.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kSamples = 16;
constexpr uint64_t kGarbage = 0xAAAAAAAAAAAAAAAA;

v1::Config Config() {
  v1::Config config = JobConfig(1, 1, kSamples, kSamples);
  config.mutable_order()->set_shuffle(false);
  return config;
}

class FileSampleBuilderTest : public ::testing::Test {
 protected:
  // Plans the one block of `module` that holds all samples.
  PlannedBlock Plan(v1::Module module) {
    const auto scheduler = *Scheduler::Create(config_, {&source_.index()});
    v1::Role role;
    role.set_module(module);
    return *PlanForBuilding(*scheduler->Schedule(0), 0, role, v1::DELIVERY_OFF,
                            {config_.model().patch(), 3});
  }

  // Builds the sample of that ordinal into memory that is filled with garbage.
  absl::StatusOr<SampleOutcome> Build(v1::Module module, uint64_t ordinal) {
    if (builder_ == nullptr) {
      builder_ = std::make_unique<FileSampleBuilder>(
          config_, FileSampleBuilder::Job{{&source_}, text_.get()});
    }
    planned_ = Plan(module);
    for (size_t i = 0; i < planned_.plan.samples.size(); ++i) {
      const SampleRecord& record = planned_.plan.samples[i].record;
      if (record.ordinal != ordinal) continue;
      const uint32_t first = planned_.first_grid[i];
      payload_.assign(record.payload_bytes / sizeof(uint64_t), kGarbage);
      request_.module = module;
      request_.record = record;
      request_.grids = absl::MakeConstSpan(planned_.grids)
                           .subspan(first, planned_.first_grid[i + 1] - first);
      request_.images = absl::MakeConstSpan(planned_.plan.images)
                            .subspan(record.first_image, record.num_images);
      request_.payload = {reinterpret_cast<uint8_t*>(payload_.data()),
                          record.payload_bytes};
      return builder_->Build(request_);
    }
    return absl::NotFoundError("no such sample in the block");
  }

  absl::Span<const int32_t> Array(uint64_t offset, uint64_t length) const {
    return {reinterpret_cast<const int32_t*>(request_.payload.data() + offset),
            length};
  }
  LanguagePayload layout() const {
    return LayOutLanguage(request_.record.tokens, 3);
  }
  absl::Span<const int32_t> ids() const {
    return Array(layout().ids, request_.record.tokens);
  }
  absl::Span<const int32_t> labels() const {
    return Array(layout().labels, request_.record.tokens);
  }
  absl::Span<const int32_t> positions() const {
    return Array(layout().positions, 3 * uint64_t{request_.record.tokens});
  }
  absl::Span<const uint8_t> pixels(const ImageRecord& image) const {
    return request_.payload.subspan(image.data,
                                    uint64_t{3} * image.height * image.width);
  }
  std::vector<GridThw> grids() const {
    std::vector<GridThw> grids;
    for (const ImageGrid& grid : request_.grids) {
      grids.push_back({1, grid.grid_h, grid.grid_w});
    }
    return grids;
  }

  // The bytes of the payload outside of its arrays or images.
  std::vector<uint8_t> Padding() const {
    std::vector<bool> taken(request_.payload.size());
    const auto take = [&](uint64_t offset, uint64_t length) {
      std::fill_n(taken.begin() + offset, length, true);
    };
    if (request_.module == v1::MODULE_VISION) {
      for (const ImageRecord& image : request_.images) {
        take(image.data, pixels(image).size());
      }
    } else {
      take(layout().ids, sizeof(int32_t) * ids().size());
      take(layout().labels, sizeof(int32_t) * labels().size());
      take(layout().positions, sizeof(int32_t) * positions().size());
    }
    std::vector<uint8_t> padding;
    for (size_t i = 0; i < taken.size(); ++i) {
      if (!taken[i]) padding.push_back(request_.payload[i]);
    }
    return padding;
  }

  v1::Config config_ = Config();
  FakeSampleSource source_{config_, kSamples};
  const std::unique_ptr<Tokenizer> tokenizer_ = *MakeTokenizer("bytes");
  const std::unique_ptr<const ModelText> text_ =
      ModelText::Create(config_.model(), tokenizer_.get()).value();
  std::unique_ptr<FileSampleBuilder> builder_;
  PlannedBlock planned_;
  SampleRequest request_;
  std::vector<uint64_t> payload_;
};

TEST_F(FileSampleBuilderTest, VisionPixelsEqualTheImageLibrarys) {
  for (uint64_t ordinal = 0; ordinal < kSamples; ++ordinal) {
    const auto outcome = Build(v1::MODULE_VISION, ordinal);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_EQ(*outcome, SampleOutcome::kBuilt);
    ASSERT_EQ(request_.images.size(), ordinal % 4);
    const RawSample raw = **source_.Read(ordinal, {});
    for (size_t i = 0; i < request_.images.size(); ++i) {
      const ImageRecord& image = request_.images[i];
      const RgbImage full = *ImageDecoder().Decode(raw.media[i].bytes);
      std::vector<uint8_t> wanted(3 * image.width * image.height);
      ASSERT_TRUE(Resize(full, Resampling(), image.width, image.height,
                         absl::MakeSpan(wanted))
                      .ok());
      EXPECT_EQ(pixels(image), absl::MakeConstSpan(wanted));
    }
    EXPECT_THAT(Padding(), Each(0));
  }
}

TEST_F(FileSampleBuilderTest, LanguageArraysEqualTheTextLibrarys) {
  const TextOptions options{text_.get(), config_.batch().max_tokens(),
                            config_.batch().on_too_long()};
  for (uint64_t ordinal = 0; ordinal < kSamples; ++ordinal) {
    const auto outcome = Build(v1::MODULE_LANGUAGE, ordinal);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_EQ(*outcome, SampleOutcome::kBuilt);
    const RawSample raw = **source_.Read(ordinal, {});
    const auto sample = source_.index().sample(ordinal);
    const TextSample text = *BuildText(raw.text, TextForm::kConversation,
                                       sample->media.images(), options);
    EXPECT_EQ(ids(), absl::MakeConstSpan(text.ids));
    EXPECT_EQ(labels(), absl::MakeConstSpan(text.labels));
    std::vector<int32_t> wanted(3 * text.ids.size());
    ASSERT_TRUE(ComputePositions(text.ids, grids(), config_.model(),
                                 absl::MakeSpan(wanted))
                    .ok());
    EXPECT_EQ(positions(), absl::MakeConstSpan(wanted));
    EXPECT_THAT(Padding(), Each(0));
  }
}

TEST_F(FileSampleBuilderTest, ReadsOnlyItsOwnPart) {
  ASSERT_TRUE(Build(v1::MODULE_VISION, 0).ok());  // no images: nothing to read
  EXPECT_THAT(source_.images_read(), ElementsAre());
  ASSERT_TRUE(Build(v1::MODULE_VISION, 3).ok());
  EXPECT_THAT(source_.images_read(), ElementsAre(3));
  EXPECT_THAT(source_.texts_read(), ElementsAre());
  // Images that vision has decoded are not read for language.
  ASSERT_TRUE(Build(v1::MODULE_LANGUAGE, 3).ok());
  EXPECT_THAT(source_.texts_read(), ElementsAre(3));
  EXPECT_THAT(source_.images_read(), ElementsAre(3));
  ASSERT_TRUE(Build(v1::MODULE_LANGUAGE, 2).ok());
  EXPECT_THAT(source_.images_read(), ElementsAre(2, 3));
}

TEST_F(FileSampleBuilderTest, WithoutAVisionModuleNoImageIsRead) {
  config_ = JobConfig(0, 1, kSamples, kSamples);
  config_.mutable_order()->set_shuffle(false);
  ASSERT_TRUE(Build(v1::MODULE_LANGUAGE, 3).ok());
  EXPECT_THAT(source_.images_read(), ElementsAre());
}

// Holds for either order of the modules.
TEST_F(FileSampleBuilderTest, ATextWhoseImageFailsIsNotSupervised) {
  for (const uint64_t ordinal : {2, 3}) {
    source_.mutable_sample(ordinal)->media[1].bytes.resize(100);
  }
  ASSERT_EQ(*Build(v1::MODULE_VISION, 2), SampleOutcome::kPlaceholder);
  ASSERT_EQ(*Build(v1::MODULE_LANGUAGE, 2), SampleOutcome::kPlaceholder);
  EXPECT_THAT(labels(), Each(-100));
  ASSERT_EQ(*Build(v1::MODULE_LANGUAGE, 3), SampleOutcome::kPlaceholder);
  EXPECT_THAT(labels(), Each(-100));
  ASSERT_EQ(*Build(v1::MODULE_VISION, 3), SampleOutcome::kPlaceholder);
  const auto bad = builder_->bad_samples().List();
  ASSERT_EQ(bad.size(), 2);
  for (const BadSamples::Sample& entry : bad) {
    EXPECT_EQ(entry.count, 2);
    EXPECT_THAT(entry.reason, HasSubstr("image 1"));
  }
  EXPECT_EQ(bad[1].file, "fake.jsonl");
  EXPECT_EQ(bad[1].offset, 300u);
}

TEST_F(FileSampleBuilderTest, ListsASampleBeingBuilt) {
  ManualClock clock;
  ActiveSamples active(&clock);
  builder_ = std::make_unique<FileSampleBuilder>(
      config_,
      FileSampleBuilder::Job{
          .sources = {&source_}, .text = text_.get(), .active = &active});
  source_.Hang(3);
  std::thread worker([&] { EXPECT_TRUE(Build(v1::MODULE_VISION, 3).ok()); });
  source_.AwaitHanging(1);
  const std::vector<ActiveSample> work = active.List();
  ASSERT_EQ(work.size(), 1);
  EXPECT_STREQ(work[0].stage, "reading images");
  EXPECT_EQ(work[0].module, v1::MODULE_VISION);
  EXPECT_EQ(work[0].ordinal, 3);
  EXPECT_EQ(builder_->GetName(work[0].source, work[0].ordinal), "docs:3");
  source_.Release();
  worker.join();
  EXPECT_THAT(active.List(), ElementsAre());
}

TEST_F(FileSampleBuilderTest, AnImageThatChangedMakesTheSampleGrey) {
  source_.mutable_sample(3)->media[1].bytes = FormulaPng(3, 1, 9, 9);
  ASSERT_EQ(*Build(v1::MODULE_VISION, 3), SampleOutcome::kPlaceholder);
  for (const ImageRecord& image : request_.images) {
    EXPECT_THAT(pixels(image), Each(128));
  }
  EXPECT_THAT(Padding(), Each(0));
  const auto bad = builder_->bad_samples().List();
  ASSERT_EQ(bad.size(), 1);
  EXPECT_EQ(bad[0].name, "docs:3 (fake.jsonl:3)");
  EXPECT_THAT(bad[0].reason, HasSubstr("image 1: image is 9x9"));
  EXPECT_EQ(bad[0].count, 1);
  ASSERT_TRUE(Build(v1::MODULE_VISION, 3).ok());
  EXPECT_EQ(builder_->bad_samples().List()[0].count, 2);
}

// A copy in place that begins with the whole length, as of a program that
// reserves it, has the indexed beginning before it has the end.
TEST_F(FileSampleBuilderTest, AnImageInTheMidstOfACopyIsNoDataFault) {
  RawSample* const sample = source_.mutable_sample(2);
  sample->media[0].bytes.back() ^= 1;
  sample->media[0].bytes[sample->media[0].bytes.size() / 2] ^= 1;
  sample->media_modified = absl::Now();
  const auto during = Build(v1::MODULE_VISION, 2);
  EXPECT_EQ(during.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(during.status().message()),
              HasSubstr("may be in the midst of a copy"));
  sample->media_modified = absl::Now() - absl::Minutes(2);
  const auto after = Build(v1::MODULE_VISION, 2);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(*after, SampleOutcome::kPlaceholder);
}

TEST(MayBeInCopyTest, ForAMinuteByEitherClock) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  EXPECT_TRUE(MayBeInCopy(now, now));
  EXPECT_TRUE(MayBeInCopy(now + absl::Seconds(59), now));
  EXPECT_TRUE(MayBeInCopy(now - absl::Seconds(59), now));
  EXPECT_FALSE(MayBeInCopy(now - absl::Seconds(60), now));
  EXPECT_FALSE(MayBeInCopy(now + absl::Seconds(60), now));
  EXPECT_FALSE(MayBeInCopy(absl::InfinitePast(), now));
}

TEST_F(FileSampleBuilderTest, AMissingImageIsNamed) {
  source_.mutable_sample(3)->media.pop_back();
  ASSERT_EQ(*Build(v1::MODULE_VISION, 3), SampleOutcome::kPlaceholder);
  EXPECT_THAT(builder_->bad_samples().List()[0].reason,
              HasSubstr("has 2 images, and had 3"));
}

TEST_F(FileSampleBuilderTest, AChangedTextKeepsItsImageTokens) {
  std::string* text = &source_.mutable_sample(2)->text;
  text->insert(text->find("What"), "More than before. ");
  ASSERT_EQ(*Build(v1::MODULE_LANGUAGE, 2), SampleOutcome::kPlaceholder);
  EXPECT_THAT(builder_->bad_samples().List()[0].reason,
              HasSubstr("tokens, and had"));
  std::vector<int32_t> wanted;
  const v1::TokenIds& special = config_.model().token_ids();
  for (const ImageGrid& grid : request_.grids) {
    wanted.push_back(special.vision_start());
    wanted.insert(wanted.end(), grid.grid_h * grid.grid_w / 4, special.image());
    wanted.push_back(special.vision_end());
  }
  ASSERT_LE(wanted.size(), request_.record.tokens);
  wanted.resize(request_.record.tokens, special.pad());
  EXPECT_EQ(ids(), absl::MakeConstSpan(wanted));
  EXPECT_THAT(labels(), Each(-100));
  std::vector<int32_t> places(3 * wanted.size());
  ASSERT_TRUE(
      ComputePositions(wanted, grids(), config_.model(), absl::MakeSpan(places))
          .ok());
  EXPECT_EQ(positions(), absl::MakeConstSpan(places));
  EXPECT_THAT(Padding(), Each(0));
}

TEST_F(FileSampleBuilderTest, PositionsOfAnUnreadableTextCountUp) {
  source_.Fail(4, DataFaultError("cut"));
  ASSERT_EQ(*Build(v1::MODULE_LANGUAGE, 4), SampleOutcome::kPlaceholder);
  EXPECT_THAT(ids(), Each(config_.model().token_ids().pad()));
  std::vector<int32_t> counted(ids().size());
  std::iota(counted.begin(), counted.end(), 0);
  for (size_t axis = 0; axis < 3; ++axis) {
    EXPECT_EQ(positions().subspan(axis * counted.size(), counted.size()),
              absl::MakeConstSpan(counted));
  }
}

TEST_F(FileSampleBuilderTest, BadSamplesAreBounded) {
  config_.mutable_serve()->set_max_bad_samples(2);
  for (const uint64_t ordinal : {4, 5, 6}) {
    source_.Fail(ordinal, DataFaultError("cut"));
  }
  EXPECT_TRUE(Build(v1::MODULE_LANGUAGE, 4).ok());
  EXPECT_TRUE(Build(v1::MODULE_LANGUAGE, 5).ok());
  EXPECT_TRUE(Build(v1::MODULE_LANGUAGE, 4).ok());  // known already
  const absl::Status status = Build(v1::MODULE_LANGUAGE, 6).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("docs:6: cut"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("; docs:4: cut; docs:5: cut)"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("serve.max_bad_samples"));
  EXPECT_TRUE(Build(v1::MODULE_LANGUAGE, 5).ok());
  EXPECT_EQ(builder_->bad_samples().List().size(), 2);
}

// A failure outside the bytes is transient: the next attempt may succeed.
TEST_F(FileSampleBuilderTest, ATransientFaultNeverBecomesAPlaceholder) {
  config_.mutable_serve()->set_max_bad_samples(0);
  for (const absl::Status& fault :
       {absl::UnavailableError("docs.tar: cannot read: I/O error (errno 5)"),
        absl::NotFoundError("docs.tar: cannot open"),
        absl::PermissionDeniedError("docs.tar: cannot open"),
        absl::ResourceExhaustedError("no memory"),
        absl::DeadlineExceededError("not read within 30s"),
        absl::InternalError("odd"), absl::AbortedError("odd")}) {
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      source_.Fail(3, fault, 1);
      const absl::Status status = Build(module, 3).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << fault;
      EXPECT_THAT(std::string(status.message()), HasSubstr("sample docs:3"));
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(std::string(fault.message())));
      EXPECT_EQ(*Build(module, 3), SampleOutcome::kBuilt);
    }
  }
  EXPECT_THAT(builder_->bad_samples().List(), ElementsAre());
}

// Language does not remember it as a fault of the images either.
TEST_F(FileSampleBuilderTest, ATransientFaultOfVisionDoesNotReachLanguage) {
  source_.Fail(2, absl::UnavailableError("stale handle"), 1);
  EXPECT_FALSE(Build(v1::MODULE_VISION, 2).ok());
  EXPECT_EQ(*Build(v1::MODULE_LANGUAGE, 2), SampleOutcome::kBuilt);
  EXPECT_EQ(*Build(v1::MODULE_VISION, 2), SampleOutcome::kBuilt);
}

TEST_F(FileSampleBuilderTest, ADataFaultIsDataLossIfConfigured) {
  config_.mutable_serve()->set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_ERROR);
  source_.mutable_sample(1)->media[0].bytes = "not an image";
  const absl::Status status = Build(v1::MODULE_VISION, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("sample docs:1 (fake.jsonl:1): image 0"));
  EXPECT_THAT(builder_->bad_samples().List(), ElementsAre());
}

// A placeholder has a token for each row of the tower's output, of the id that
// the model replaces by it.
TEST(FamilyPlaceholderTest, VideosHaveTheIdThatTheModelWants) {
  for (const char* profile : {"internvl3", "llava_onevision", "llava_video"}) {
    v1::Model model;
    model.set_profile(profile);
    model.set_chat_template(profile);
    model.set_tokenizer(
        "tests/server/text/testdata/family_chats.tokenizer.json");
    model.mutable_token_ids()->set_end_of_text(7);
    ASSERT_TRUE(ApplyModelProfile(&model).ok());
    const auto tokenizer = OpenModelTokenizer(&model);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto family = ModelText::Create(model, tokenizer->get());
    ASSERT_TRUE(family.ok()) << family.status();
    const std::vector<ImageSize> sides = {{448, 448}};
    const uint64_t of_images = (*family)->images().Placeholders(sides).value();
    MediaText videos;
    videos.texts = {{2, 30, {}}, {1, 7, {}}};
    constexpr uint32_t kBehind = 5;
    SampleRequest request = {};
    request.record.tokens = of_images + 67 + kBehind;
    const LanguagePayload layout = LayOutLanguage(request.record.tokens, 1);
    AlignedBuffer payload = AlignedBuffer::Create(layout.bytes).value();
    request.payload = payload.bytes();
    FillLanguagePlaceholder(request, **family, sides, videos);
    const auto* ids =
        reinterpret_cast<const int32_t*>(payload.bytes().data() + layout.ids);
    const auto count = [&](int32_t id) {
      return static_cast<uint64_t>(
          std::count(ids, ids + request.record.tokens, id));
    };
    const int32_t image = model.token_ids().image();
    const int32_t video = (*family)->video_placeholder();
    if (std::string(profile) != "llava_onevision") {
      EXPECT_EQ(video, image);
      EXPECT_EQ(count(image), of_images + 67);
    } else {
      EXPECT_EQ(video, *(*tokenizer)->SpecialTokenId("<video>"));
      EXPECT_EQ(count(image), of_images);
      EXPECT_EQ(count(video), 67u);
    }
    EXPECT_EQ(count(model.token_ids().pad()), kBehind);
  }
}

// Its fields have their defaults, or 0, and no byte is left as it was.
TEST(FieldPlaceholderTest, HasDefaults) {
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  model.set_tokenizer("bytes");
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto text = ModelText::Create(model, tokenizer->get());
  ASSERT_TRUE(text.ok()) << text.status();
  using Field = v1::Source::Field;
  const std::vector<FieldSpec> specs = {
      {"a", Field::TYPE_INT32, Field::PER_SAMPLE, 7},
      {"b", Field::TYPE_FLOAT32, Field::PER_TOKEN, 0.5},
      {"c", Field::TYPE_INT32, Field::PER_SAMPLE, std::nullopt},
      {"d", Field::TYPE_INT32, Field::PER_TURN, std::nullopt}};
  SampleRequest request = {};
  request.record.tokens = 5;
  const LanguagePayload layout = LayOutLanguage(5, 3, {2, 2});
  AlignedBuffer payload = AlignedBuffer::Create(layout.bytes).value();
  request.payload = payload.bytes();
  std::fill(request.payload.begin(), request.payload.end(), 0xAB);
  FillLanguagePlaceholder(request, **text, {}, {}, specs);
  const auto* values =
      reinterpret_cast<const int32_t*>(request.payload.data() + layout.values);
  EXPECT_EQ(values[0], 7);
  EXPECT_EQ(values[1], 0);
  const uint8_t* rows = request.payload.data() + layout.rows;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(reinterpret_cast<const float*>(rows)[i], 0.5f);
    EXPECT_EQ(reinterpret_cast<const int32_t*>(rows)[5 + i], 0);
  }
  EXPECT_EQ(std::count(request.payload.begin(), request.payload.end(), 0xAB),
            0);
}

}  // namespace

}  // namespace ballast
