#ifndef BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_
#define BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/corpus/sample_source.h"
#include "server/delivery/bad_samples.h"
#include "server/delivery/sample_builder.h"
#include "server/image/image.h"
#include "server/text/text_sample.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Builds samples from their sources: vision reads, decodes and resizes the
// images straight into the payload; language reads the text, tokenises it and
// lays out ids, labels and positions. Neither reads the other's part.
//
// A sample that fails follows serve.on_bad_sample: with `placeholder` it is
// listed as bad and a placeholder (placeholder.h) takes its place, until
// serve.max_bad_samples are listed; with `error`, and after that, it is
// DATA_LOSS naming the sample.
class FileSampleBuilder : public SampleBuilder {
 public:
  // `config` is a loaded one; sources[i] belongs to config.sources(i). Sources
  // and tokenizer are not owned.
  FileSampleBuilder(const v1::Config& config,
                    std::vector<const SampleSource*> sources,
                    const Tokenizer* tokenizer);

  absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const override;

  const BadSamples& bad_samples() const { return bad_samples_; }

  // Images with faults that were decoded past, as Pillow does; they count as
  // good.
  uint64_t images_with_warnings() const { return images_with_warnings_; }

 private:
  // Sets `name` to how the source calls the sample, once that is known.
  absl::Status BuildVision(const SampleRequest& request,
                           std::string* name) const;
  absl::Status BuildLanguage(const SampleRequest& request,
                             std::string* name) const;

  const v1::Config config_;
  const std::vector<const SampleSource*> sources_;
  const TextOptions text_options_;
  const ImageOptions image_options_;
  mutable BadSamples bad_samples_;
  mutable std::atomic<uint64_t> images_with_warnings_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_
