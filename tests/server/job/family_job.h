#ifndef BALLAST_TESTS_SERVER_JOB_FAMILY_JOB_H_
#define BALLAST_TESTS_SERVER_JOB_FAMILY_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/aligned_buffer.h"
#include "proto/block/block_view.h"
#include "server/delivery/file_sample_builder.h"
#include "server/job/job_setup.h"
#include "server/media/encode.h"
#include "server/media/image/image.h"

namespace ballast {

// A conversation in a data set for tests: images by file name.
struct TestSample {
  std::string messages_json;
  std::vector<std::string> images;  // relative to the data set's directory
};

// Writes `directory`/chat.jsonl.
void WriteConversations(const std::string& directory,
                        absl::Span<const TestSample> samples);

// Writes a picture of a gradient with grain.
void WritePicture(const std::string& path, uint32_t height, uint32_t width,
                  uint64_t seed, FileFormat format = FileFormat::kPng);

// A block and its bytes.
struct BuiltBlock {
  std::unique_ptr<AlignedBuffer> bytes;
  BlockPlan plan;

  BlockView view() const;
  // The crops of sample `i`.
  std::vector<RgbImage> Crops(uint32_t i) const;
  // Ids and position ids of sample `i` of a language block.
  std::vector<int32_t> Ids(uint32_t i) const;
  std::vector<int32_t> Labels(uint32_t i) const;
  std::vector<int32_t> Positions(uint32_t i, uint32_t axes) const;
};

// A job over the conversations of a directory, all in one micro-batch, in the
// order of the file; of one rank, unless `more` has a topology.
class FamilyJob {
 public:
  // `model`: the section's YAML, one line in braces. `more`: other sections.
  // Indexes the conversations.
  static absl::StatusOr<std::unique_ptr<FamilyJob>> Open(
      const std::string& directory, uint32_t samples, const std::string& model,
      const std::string& more = "");

  const OpenedJob& job() const { return job_; }
  // The block of a rank in the only micro-batch of a step.
  absl::StatusOr<BuiltBlock> Build(v1::Module module, uint64_t step = 0,
                                   uint32_t rank = 0) const;
  const FileSampleBuilder& builder() const { return *builder_; }

 private:
  FamilyJob() = default;

  OpenedJob job_;
  std::unique_ptr<FileSampleBuilder> builder_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_JOB_FAMILY_JOB_H_
