// Which indexes a job with `decode: device` accepts, and what travels encoded.

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/corpus/check/index_check.h"
#include "server/corpus/open_source.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/server/corpus/check/check_testing.h"
#include "tests/server/corpus/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

v1::Config GetConfig(v1::Model::Decode decode, bool unchecked = false) {
  v1::Config config;
  config.mutable_model()->set_decode(decode);
  config.mutable_model()->set_device_unchecked(unchecked);
  return config;
}

class DecodeDeviceTest : public ::testing::Test {
 protected:
  // A sound file, one that is damaged behind its header, a progressive one.
  DecodeDeviceTest() {
    std::string damaged = MakeJpeg({.width = 90, .height = 90});
    damaged.erase(damaged.size() / 2, 5);
    images_ = {MakeJpeg({}), damaged, MakeJpeg({.progressive = true})};
    source_ = IndexImages(folder_, images_);
  }

  absl::StatusOr<std::unique_ptr<SampleSource>> Open(const v1::Config& config) {
    return OpenAnySource(source_, config, folder_, FakeKey());
  }

  // Lengths of the files that travel encoded.
  std::vector<uint32_t> Encoded(const v1::Config& config) {
    std::vector<uint32_t> lengths;
    const auto opened = Open(config);
    EXPECT_TRUE(opened.ok()) << opened.status();
    for (uint64_t i = 0; opened.ok() && i < images_.size(); ++i) {
      lengths.push_back((*opened)->index().sample(i)->encoded_bytes(0));
    }
    return lengths;
  }

  const std::string folder_ = TestFolder();
  std::vector<std::string> images_;
  v1::Source source_;
};

TEST_F(DecodeDeviceTest, NeedsACheckOrConsent) {
  const v1::Config device = GetConfig(v1::Model::DECODE_DEVICE);
  const absl::Status status = Open(device).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("source docs: model.decode is device, and 2 of 2 "
                        "images that JPEG engines may decode have not been "
                        "checked"));
  EXPECT_THAT(status.message(), HasSubstr("ballast-server index --check"));
  EXPECT_THAT(status.message(), HasSubstr("model.device_unchecked: true"));
  const auto length = [&](size_t i) {
    return static_cast<uint32_t>(images_[i].size());
  };
  using Lengths = std::vector<uint32_t>;
  const v1::Config unchecked = GetConfig(v1::Model::DECODE_DEVICE, true);
  const v1::Config host = GetConfig(v1::Model::DECODE_HOST);
  EXPECT_EQ(Encoded(unchecked), (Lengths{length(0), length(1), 0}));
  EXPECT_EQ(Encoded(host), (Lengths{0, 0, 0}));

  const CheckOptions options = ScanOptions();
  ASSERT_TRUE(CheckImages(*OpenImages(folder_, source_), options).ok());
  ASSERT_TRUE(
      MergeChecks(folder_ + "/index/docs.index", options.unit_size).ok());
  EXPECT_EQ(Encoded(device), (Lengths{length(0), 0, 0}));
  EXPECT_EQ(Encoded(unchecked), (Lengths{length(0), 0, 0}));
  EXPECT_EQ(Encoded(host), (Lengths{0, 0, 0}));
}

}  // namespace
}  // namespace ballast
