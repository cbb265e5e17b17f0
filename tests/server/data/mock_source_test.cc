#include "server/data/mock_source.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "server/media/image/image.h"
#include "server/model/model_profile.h"
#include "server/text/sample_text.h"
#include "tests/fakes/read_sample.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kLengths[] =
    "lengths: {mode: lognormal, min: 20, max: 900, mean: 300, sigma: 1.1, "
    "count: 3000}";
constexpr char kImages[] =
    ", images: {min: 0, max: 3, pixels: {min: 1000, max: 400000, mean: 100000, "
    "sigma: 0.8}, aspect: 3}";

v1::Config GetConfig(const std::string& source, const std::string& batch = "",
                     const std::string& directory = ".") {
  const auto loaded =
      ParseConfig(absl::StrCat("sources: [{name: m, format: mock, ", source,
                               "}]\nbatch: {global: 8, micro: 4", batch,
                               "}\ntopology: {modules: {language: {dp: 2}}}\n"),
                  "test.yaml", directory);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded->config;
}

absl::StatusOr<std::unique_ptr<MockSource>> Open(const v1::Config& config) {
  return MockSource::Create(config.sources(0), config.model(), config.batch());
}

std::unique_ptr<MockSource> OpenOrFail(const v1::Config& config) {
  auto source = Open(config);
  EXPECT_TRUE(source.ok()) << source.status();
  return *std::move(source);
}

uint64_t TotalOf(const IndexedSample& sample, const v1::Model& model) {
  return sample.text_tokens +
         *ModelImages::Create(model)->Placeholders(sample.media.images());
}

std::vector<int32_t> IdsOf(const std::string& bytes) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < bytes.size(); i += 4) {
    uint32_t id = 0;
    for (int k = 3; k >= 0; --k) {
      id = id << 8 | static_cast<unsigned char>(bytes[i + k]);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

TEST(MockSourceTest, LengthsAreMegatronsSampleForSample) {
  const v1::Config config = GetConfig(
      "lengths: {mode: lognormal, min: 1024, max: 8192, mean: 4096, sigma: "
      "1.1, count: 8}",
      ", max_tokens: 8192");
  const auto source = OpenOrFail(config);
  std::vector<uint64_t> lengths;
  for (uint64_t i = 0; i < source->index().size(); ++i) {
    lengths.push_back(source->index().sample(i)->text_tokens);
    EXPECT_EQ(source->index().sample(i)->label_tokens, lengths.back() - 1);
  }
  // The lengths of Megatron-LM's mock datasets for these numbers.
  EXPECT_THAT(lengths,
              ElementsAre(8192, 3473, 6564, 8192, 8192, 1024, 6360, 1893));
  // Images count towards a sample's length.
  const v1::Config pictures = GetConfig(absl::StrCat(kLengths, kImages));
  const auto with_images = OpenOrFail(pictures);
  MockLengths drawn({20, 900, 300, 1.1});
  uint64_t longer = 0;
  for (uint64_t i = 0; i < with_images->index().size(); ++i) {
    const IndexedSample sample = *with_images->index().sample(i);
    const uint64_t length = drawn.Next();
    const uint64_t total = TotalOf(sample, pictures.model());
    if (total == length) continue;
    // Covers its images and at least one token of text.
    EXPECT_GT(total, length);
    EXPECT_EQ(sample.text_tokens, 2 * sample.media.images().size() + 1);
    EXPECT_EQ(sample.label_tokens, 1);
    ++longer;
  }
  EXPECT_GT(longer, 0);
  EXPECT_LT(longer, with_images->index().size() / 2);
}

// The index agrees with what tokenising and decoding find.
void ExpectSamplesMatchTheIndex(const v1::Config& config) {
  const auto source = OpenOrFail(config);
  const v1::Model& model = config.model();
  const auto of_model = ModelText::Create(model, /*tokenizer=*/nullptr);
  ASSERT_TRUE(of_model.ok()) << of_model.status();
  const TextOptions text = {of_model->get(), config.batch().max_tokens(),
                            config.batch().on_too_long()};
  std::set<size_t> counts;
  for (uint64_t i = 0; i < 40; ++i) {
    const IndexedSample indexed = *source->index().sample(i);
    const auto raw = ReadSample(*source, i, {});
    ASSERT_TRUE(raw.ok()) << raw.status();
    const auto measured = MeasureText(raw->text, TextForm::kPackedBytes,
                                      indexed.media.images(), text);
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_EQ(measured->text_tokens, indexed.text_tokens);
    EXPECT_EQ(measured->label_tokens, indexed.label_tokens);
    counts.insert(indexed.media.images().size());
    ASSERT_EQ(raw->media.size(), indexed.media.size());
    for (size_t k = 0; k < raw->media.size(); ++k) {
      const auto image = ImageDecoder().Decode(raw->media[k].bytes);
      ASSERT_TRUE(image.ok()) << image.status();
      EXPECT_EQ(image->width, indexed.media.images()[k].width);
      EXPECT_EQ(image->height, indexed.media.images()[k].height);
    }
  }
  EXPECT_THAT(counts, ElementsAre(0, 1, 2, 3));
}

TEST(MockSourceTest, SamplesMatchTheIndex) {
  ExpectSamplesMatchTheIndex(GetConfig(absl::StrCat(kLengths, kImages)));
}

// Texts of such a model have no ids for the ends of an image, whatever ids the
// configuration gives.
TEST(MockSourceTest, SamplesOfOtherImagesMatchTheIndex) {
  v1::Config config = GetConfig(absl::StrCat(kLengths, kImages));
  v1::ImageFamily& family = *config.mutable_model()->mutable_image_family();
  family.set_rule(v1::ImageFamily::RULE_LONGEST_EDGE);
  family.set_patch(16);
  family.set_longest_edge(512);
  family.mutable_marks()->set_placeholder("<image>");
  ASSERT_GE(config.model().token_ids().vision_start(), 0);
  ExpectSamplesMatchTheIndex(config);
}

TEST(MockSourceTest, IdsComeFromTheVocabularyWithoutSpecialOnes) {
  v1::Config config =
      GetConfig(absl::StrCat("vocabulary: 8, ", kLengths, kImages));
  v1::TokenIds& ids = *config.mutable_model()->mutable_token_ids();
  ids.set_image(3);
  ids.set_end_of_text(5);
  ids.set_pad(0);
  const auto source = OpenOrFail(config);
  std::map<int32_t, int> seen;
  for (uint64_t i = 0; i < 200; ++i) {
    const auto raw = ReadSample(*source, i, {.text = true, .images = false});
    ASSERT_TRUE(raw.ok()) << raw.status();
    EXPECT_TRUE(Images(*raw).empty());
    const std::vector<int32_t> all = IdsOf(raw->text);
    EXPECT_EQ(all.back(), 5);
    for (size_t t = 0; t + 1 < all.size(); ++t) {
      if (all[t] == 3 || all[t] == ids.vision_start() ||
          all[t] == ids.vision_end()) {
        continue;
      }
      ++seen[all[t]];
    }
  }
  // The ids 1, 2, 4, 6, 7, about equally often.
  ASSERT_EQ(seen.size(), 5u);
  int total = 0;
  for (const auto& [id, count] : seen) total += count;
  for (const auto& [id, count] : seen) {
    EXPECT_TRUE(id >= 1 && id < 8 && id != 3 && id != 5) << id;
    EXPECT_NEAR(count, total / 5.0, 6 * std::sqrt(total / 5.0)) << id;
  }
  config.mutable_sources(0)->set_vocabulary(2);
  ids.set_im_start(1);
  EXPECT_THAT(Open(config).status().message(),
              HasSubstr("source m: vocabulary is 2"));
}

// Content depends on the name and the number alone: any part, read again, by
// any source object.
TEST(MockSourceTest, ContentDependsOnlyOnNameAndNumber) {
  const v1::Config config = GetConfig(absl::StrCat(kLengths, kImages));
  const auto a = OpenOrFail(config);
  const auto b = OpenOrFail(config);
  EXPECT_EQ(a->index().digest(), b->index().digest());
  std::set<std::string> texts;
  for (uint64_t i = 0; i < 50; ++i) {
    const auto whole = ReadSample(*a, i, {});
    ASSERT_TRUE(whole.ok());
    EXPECT_EQ(ReadSample(*b, i, {.text = true, .images = false})->text,
              whole->text);
    EXPECT_EQ(Images(*ReadSample(*b, i, {.text = false, .images = true})),
              Images(*whole));
    texts.insert(whole->text);
  }
  EXPECT_EQ(texts.size(), 50u);
  v1::Config other = config;
  other.mutable_sources(0)->set_name("n");
  const auto c = OpenOrFail(other);
  EXPECT_NE(ReadSample(*c, 0, {})->text, ReadSample(*a, 0, {})->text);
  EXPECT_NE(c->index().digest(), a->index().digest());
  other = config;
  other.mutable_sources(0)->set_vocabulary(100);
  EXPECT_NE(OpenOrFail(other)->index().digest(), a->index().digest());
}

TEST(MockSourceTest, ImagesStayWithinTheirBounds) {
  const v1::Config config = GetConfig(
      "lengths: {mode: lognormal, min: 1, max: 1, mean: 1, sigma: 0, count: "
      "4000}, images: {min: 2, max: 2, pixels: {min: 5000, max: 90000, mean: "
      "30000, sigma: 0.5}, aspect: 2}");
  const auto source = OpenOrFail(config);
  double pixels = 0;
  uint64_t upright = 0, squeezed = 0;
  for (uint64_t i = 0; i < source->index().size(); ++i) {
    const auto images = source->index().sample(i)->media.images();
    ASSERT_EQ(images.size(), 2u);
    for (const ImageSize& image : images) {
      const uint64_t area = uint64_t{image.width} * image.height;
      const double ratio = double(std::max(image.width, image.height)) /
                           std::min(image.width, image.height);
      EXPECT_GE(area, 4500u);  // sides are whole
      EXPECT_LE(area, 90000u);
      EXPECT_LE(ratio, 2.0);
      pixels += area;
      upright += image.height > image.width;
      squeezed += ratio > 1.5;
    }
  }
  // Clipping changes little at sigma 0.5.
  EXPECT_NEAR(pixels / 8000, 30000, 1500);
  EXPECT_NEAR(upright / 8000.0, 0.5, 0.03);
  EXPECT_NEAR(squeezed / 8000.0, 0.5, 0.03);
}

TEST(MockSourceTest, HandlesTooLongSamples) {
  const std::string lengths =
      "lengths: {mode: lognormal, min: 20, max: 900, mean: 300, sigma: 1.1, "
      "count: 1000}";
  MockLengths drawn({20, 900, 300, 1.1});
  std::vector<uint32_t> all(1000);
  for (uint32_t& length : all) length = drawn.Next();
  const auto longer =
      std::count_if(all.begin(), all.end(), [](uint32_t n) { return n > 400; });
  const auto error = Open(GetConfig(lengths, ", max_tokens: 400")).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(),
              HasSubstr(absl::StrCat("source m: ", longer,
                                     " of 1000 samples have more than 400")));

  const auto cut = OpenOrFail(
      GetConfig(lengths, ", max_tokens: 400, on_too_long: truncate_text"));
  ASSERT_EQ(cut->index().size(), 1000u);
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(cut->index().sample(i)->text_tokens, std::min(all[i], 400u));
  }
  const auto skipped =
      OpenOrFail(GetConfig(lengths, ", max_tokens: 400, on_too_long: skip"));
  ASSERT_EQ(skipped->index().size(), 1000u - longer);
  // The remaining samples equal those of the whole source.
  const auto whole = OpenOrFail(GetConfig(lengths));
  uint64_t number = 0;
  for (uint64_t i = 0; i < 20; ++i, ++number) {
    while (all[number] > 400) ++number;
    EXPECT_EQ(ReadSample(*skipped, i, {})->text,
              ReadSample(*whole, number, {})->text);
    EXPECT_EQ(skipped->Locate(i).offset, number);
  }
  EXPECT_THAT(Open(GetConfig(lengths, ", max_tokens: 19, on_too_long: skip"))
                  .status()
                  .message(),
              HasSubstr("all samples"));
}

TEST(MockSourceTest, TakesLengthsFromAFile) {
  const std::string folder = TestFolder();
  WriteFile(folder + "/lengths.csv", "length\n5\n7, 9\n\n11\r\n");
  const v1::Config config =
      GetConfig("lengths: {mode: file, path: lengths.csv}", "", folder);
  const auto source = OpenOrFail(config);
  std::vector<uint32_t> lengths;
  for (uint64_t i = 0; i < source->index().size(); ++i) {
    lengths.push_back(source->index().sample(i)->text_tokens);
  }
  EXPECT_THAT(lengths, ElementsAre(5, 7, 9, 11));
  EXPECT_EQ(ReadSample(*source, 4, {}).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(source->Locate(4).file, "");
  WriteFile(folder + "/lengths.csv", "5\nnine\n");
  EXPECT_THAT(Open(config).status().message(),
              HasSubstr("lengths.csv: line 2: found \"nine\""));
  EXPECT_EQ(Open(GetConfig("lengths: {mode: file, path: absent}", "", folder))
                .status()
                .code(),
            absl::StatusCode::kNotFound);
}

std::vector<uint32_t> Draw(const LognormalLengths& lengths, size_t count) {
  MockLengths drawn(lengths);
  std::vector<uint32_t> all(count);
  for (uint32_t& length : all) length = drawn.Next();
  return all;
}

// Expected values from numpy's legacy generator.
TEST(MockLengthsTest, EqualsNumpy) {
  EXPECT_THAT(
      Draw({1024, 8192, 4096, 1.1}, 8),
      testing::ElementsAre(8192, 3473, 6564, 8192, 8192, 1024, 6360, 1893));
  EXPECT_THAT(
      Draw({1024, 2048, 1536, 1.1}, 8),
      testing::ElementsAre(2048, 1302, 2048, 2048, 2048, 1024, 2048, 1024));
  EXPECT_THAT(
      Draw({100, 4096, 2048, 1.1}, 8),
      testing::ElementsAre(4096, 1736, 3282, 4096, 4096, 381, 3180, 946));
}

// With wide bounds, the lengths' logarithms are the normal draws that seed 0
// begins with; a length of more than 10^4 tokens has them to 4 digits.
TEST(MockLengthsTest, LogarithmsAreNumpysNormalDraws) {
  const double kSigma = 0.1;
  const std::vector<uint32_t> lengths = Draw({1, 1u << 24, 1e7, kSigma}, 6);
  const double normals[] = {1.76405235, 0.40015721, 0.97873798,
                            2.2408932,  1.86755799, -0.97727788};
  const double mu = std::log(1e7) - kSigma * kSigma / 2;
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR((std::log(lengths[i]) - mu) / kSigma, normals[i], 1e-5);
  }
}

TEST(MockLengthsTest, EqualsTheGoldenFile) {
  constexpr char kGolden[] = "golden/mock_lognormal.json";
  const std::optional<std::string> shared = SharedDirWith(kGolden);
  if (!shared) GTEST_SKIP() << NotShared(kGolden);
  std::ifstream file(*shared + "/" + kGolden);
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_FALSE(golden.at("cases").empty());
  for (const nlohmann::json& test : golden.at("cases")) {
    MockLengths lengths({test.at("min_seq_len"), test.at("max_seq_len"),
                         test.at("mean_seq_len"), test.at("lognormal_sigma")});
    const auto first = test.at("first_64").get<std::vector<uint32_t>>();
    uint64_t sum = 0;
    for (size_t i = 0; i < 1000000; ++i) {
      const uint32_t length = lengths.Next();
      if (i < first.size()) {
        EXPECT_EQ(length, first[i]) << i;
      }
      sum += length;
    }
    EXPECT_EQ(sum, test.at("sum_1000000").get<uint64_t>());
  }
}

TEST(MockLengthsTest, WithoutDeviationEveryLengthIsTheMean) {
  EXPECT_THAT(Draw({1, 100, 64, 0}, 3), testing::Each(testing::AnyOf(63, 64)));
  EXPECT_THAT(Draw({7, 7, 64, 1}, 5), testing::Each(7));
}

TEST(MockLengthsTest, ExtremeParametersStayWithinTheBounds) {
  for (const double mean : {1e-300, 1.0, 16777216.0}) {
    for (const uint32_t length : Draw({3, 1u << 24, mean, 100}, 1000)) {
      EXPECT_GE(length, 3u);
      EXPECT_LE(length, 1u << 24);
    }
  }
}

// With or without a heading: the first line counts unless it is no number.
TEST(ParseLengthsTest, ReadsNumbersAndAHeading) {
  using ::testing::ElementsAre;
  EXPECT_THAT(*ParseLengths("5\n6\n"), ElementsAre(5, 6));
  EXPECT_THAT(*ParseLengths("length\n5\n6"), ElementsAre(5, 6));
  EXPECT_THAT(*ParseLengths("a,b\n5, 6\n7,8\n"), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(*ParseLengths("\n 5 \r\n\n16777216\n"), ElementsAre(5, 16777216));
  const struct {
    const char* text;
    const char* message;
  } kBad[] = {
      {"", "holds no length"},
      {"length\n", "holds no length"},
      {"length\nlength\n", "line 2: found \"length\""},
      {"1.5\n", "line 1: found \"1.5\""},
      {"3\n0\n", "line 2: found \"0\""},
      {"3\n-1\n", "line 2: found \"-1\""},
      {"3,\n", "line 1: found \"\""},
      {"3,x\n", "line 1: found \"x\""},
      {"3\n16777217\n", "line 2: found \"16777217\""},
  };
  for (const auto& bad : kBad) {
    const absl::Status status = ParseLengths(bad.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message));
  }
}

TEST(MockLengthsTest, NamesTheValueOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    LognormalLengths lengths;
    const char* name;
  } kBad[] = {
      {{0, 8, 4, 1}, "min is 0"},
      {{1, 0, 4, 1}, "max is 0"},
      {{1, (1u << 24) + 1, 4, 1}, "max is 16777217"},
      {{9, 8, 4, 1}, "min is 9; wanted at most max, which is 8"},
      {{1, 8, 0, 1}, "mean is 0"},
      {{1, 8, nan, 1}, "mean is nan"},
      {{1, 8, 1e8, 1}, "mean is 1e+08"},
      {{1, 8, 4, -1}, "sigma is -1"},
      {{1, 8, 4, nan}, "sigma is nan"},
      {{1, 8, 4, 101}, "sigma is 101"},
  };
  for (const auto& bad : kBad) {
    const absl::Status status = CheckLognormalLengths(bad.lengths);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.name));
  }
  EXPECT_TRUE(CheckLognormalLengths({1, 1u << 24, 16777216, 100}).ok());
}

}  // namespace
}  // namespace ballast
