#ifndef BALLAST_TESTS_INTEGRATION_ENCODED_JOB_H_
#define BALLAST_TESTS_INTEGRATION_ENCODED_JOB_H_

#include <cstdint>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_job.h"

namespace ballast {

// The directory of a dataset, written once.
inline std::string DatasetDirectory(const std::string& name,
                                    const JpegDataset& dataset) {
  const std::string path = ::testing::TempDir() + "/jpegs_" + name;
  if (std::filesystem::create_directories(path)) {
    const absl::Status written =
        WriteJpegDataset(path + "/docs-0.tar", dataset);
    EXPECT_TRUE(written.ok()) << written;
  }
  return path;
}

inline std::string MixedJpegs() { return DatasetDirectory("mixed", {}); }
inline std::string DamagedJpegs() {
  return DatasetDirectory("damaged", {.samples = 80, .damaged_every = 3});
}
// One sample in ten has images.
inline std::string FewJpegs() {
  return DatasetDirectory("few", {.samples = 60, .images_every = 10});
}

struct EncodedJob {
  uint32_t vision_dp = 1;
  uint32_t language_dp = 1;
  std::string delivery = "exchange";
  std::string model = "profile: qwen2_5_vl, max_pixels: 60000";  // its keys
  std::string balance;  // more keys of that section
  std::string more;     // more sections
  std::string layout;   // more keys of both modules
  int servers = 1;
};

// Indexed and checked. `decode`: model.decode.
inline LoadedConfig GetConfig(const EncodedJob& job,
                              const std::string& directory,
                              const std::string& decode) {
  TestJob text = GridJob(job.vision_dp, job.language_dp, job.delivery,
                         job.balance, job.layout);
  text.model = absl::StrCat(job.model, ", decode: ", decode);
  text.more = job.more;
  LoadedConfig config = ParseJob(text, directory);
  const auto indexed = IndexSources(config, {});
  EXPECT_TRUE(indexed.ok()) << indexed.status();
  const auto checked = CheckSources(config, {});
  EXPECT_TRUE(checked.ok()) << checked.status();
  return config;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_INTEGRATION_ENCODED_JOB_H_
