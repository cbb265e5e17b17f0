#ifndef BALLAST_TESTS_FAKES_TEST_JOB_H_
#define BALLAST_TESTS_FAKES_TEST_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {

// A job for a TestCluster: the sections of its YAML, with what most tests want.
struct TestJob {
  std::string sources = "{name: docs, format: webdataset, path: 'docs-*.tar'}";
  std::string model = "profile: qwen2_5_vl, max_pixels: 200704";
  std::string batch = "global: 16, micro: 8";
  std::string modules = "vision: {dp: 2}, language: {dp: 2}";
  std::string balance;  // "": no section
  std::string serve;    // more keys
  std::string more;     // more sections
};

// A job of paired ranks: each of the lcm(vision_dp, language_dp) groups of a
// micro-batch has four samples, and a step has two micro-batches. `layout`:
// more keys of both modules; `balance`: more keys beside the delivery.
TestJob GridJob(uint32_t vision_dp, uint32_t language_dp,
                const std::string& delivery, const std::string& balance = "",
                const std::string& layout = "");

// The configuration of `job`, whose files are in `folder`. A fault fails the
// test, as everywhere below.
LoadedConfig ParseJob(const TestJob& job, const std::string& folder);

std::unique_ptr<TestCluster> StartCluster(const LoadedConfig& config,
                                          int servers = 1);

// The batches of all ranks of steps [0, steps).
TestCluster::Batches RunJob(const LoadedConfig& config, uint64_t steps,
                            int servers = 1);

// A folder for `name` with a formula dataset, docs-0.tar, written once.
std::string FormulaFolder(
    const std::string& name, uint32_t samples,
    const std::function<uint32_t(uint32_t sample)>& images = FormulaImages);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_TEST_JOB_H_
