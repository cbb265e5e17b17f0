#ifndef BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_
#define BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "proto/config.pb.h"
#include "server/delivery/block.h"
#include "server/delivery/decode_budget.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/language_builder.h"
#include "server/delivery/media_checks.h"
#include "server/delivery/sample_reader.h"
#include "server/delivery/stall_watchdog.h"
#include "server/media/image_plan/image_family.h"
#include "server/media/rows_rule.h"
#include "server/sample/data_fault.h"
#include "server/sample/sample_source.h"
#include "server/text/media_text.h"
#include "server/text/model_text.h"
#include "server/text/positions.h"

namespace ballast {

// Placeholders replace a sample that has a data fault, with exactly its size,
// so that every other sample stays where the schedule places it. Both functions
// write every byte of request.payload.

// Fills in grey images (kGreyPixel). The places of images that pass through
// encoded are zeroed: the owner makes them grey (kSampleIsPlaceholder). So are
// features of audio.
void FillVisionPlaceholder(const SampleRequest& request);

// Fills in the placeholders of the sample's media as far as they fit, so that
// the language model still finds a token for each image embedding, each run
// between vision start and end where the model has their ids; then pad ids.
// Nothing is supervised. Positions as for any sample. Fields have their
// defaults, or 0.
void FillLanguagePlaceholder(const SampleRequest& request,
                             const ModelText& text, const SampleImages& images,
                             const MediaText& streams,
                             absl::Span<const FieldSpec> fields = {});

// The samples in which serving found a data fault: each is listed and logged
// once. Holds at most `most` of them. Thread-safe.
class BadSamples {
 public:
  struct Sample {
    std::string name;  // "docs:17"
    std::string file;
    uint64_t offset = 0;  // in the file, bytes
    std::string reason;   // of the first failure
    uint64_t count = 0;   // blocks that needed it
  };

  explicit BadSamples(uint32_t most) : most_(most) {}

  // Lists sample `ordinal` of source number `source`. Errors: DATA_LOSS if
  // `most` are listed already, naming this sample and the last ones listed.
  absl::Status Add(uint32_t source, uint64_t ordinal, absl::string_view name,
                   const SampleLocation& location, const DataFault& fault);

  // Ordered by source, then by ordinal.
  std::vector<Sample> List() const;

  uint32_t most() const { return most_; }
  // Changes `most` from now on; listed samples stay.
  void SetMost(uint32_t most) { most_ = most; }

 private:
  using Key = std::pair<uint32_t, uint64_t>;

  std::atomic<uint32_t> most_;
  mutable Mutex mutex_;
  std::map<Key, Sample> samples_ ABSL_GUARDED_BY(mutex_);
  // Keys of the samples listed last, oldest first.
  std::deque<Key> last_ ABSL_GUARDED_BY(mutex_);
};

// Builds an encoder's payloads: reads the images, and decodes and resizes them
// straight into the payload; or makes the features of audio there. Files of
// images that pass through encoded are read straight into it. Records for other
// modules whether all such media of the sample are good. Thread-safe.
class EncoderBuilder {
 public:
  // Neither is owned.
  EncoderBuilder(const SampleReader* reader, MediaChecks* checks)
      : reader_(reader), checks_(checks) {}

  // Fills the payload, or returns the data fault that prevented it. Non-OK
  // statuses are transient faults. Blocks on the disk.
  absl::StatusOr<std::optional<DataFault>> Build(const SampleRequest& request,
                                                 SampleWork* work);

  // Images whose faults were skipped, as Pillow does.
  uint64_t images_with_warnings() const { return images_with_warnings_; }

 private:
  absl::StatusOr<std::optional<DataFault>> Read(const SampleRequest& request,
                                                Media media, SampleWork* work);

  const SampleReader* const reader_;
  MediaChecks* const checks_;
  std::atomic<uint64_t> images_with_warnings_ = 0;
};

// Builds samples from their sources, by an EncoderBuilder and a
// LanguageBuilder, and decides what becomes of a sample that fails:
//
//   data fault       serve.on_bad_sample: with `placeholder` the sample is
//                    listed as bad and a placeholder replaces
//                    it, until serve.max_bad_samples are listed. With `error`,
//                    and after that, Build returns DATA_LOSS naming the sample.
//   transient fault  UNAVAILABLE naming the sample; nothing is listed, and the
//                    next Build of it starts afresh.
class FileSampleBuilder : public SampleBuilder {
 public:
  // The job whose samples are built. Nothing is owned.
  struct Job {
    std::vector<const SampleSource*> sources;  // in order of the configuration
    const ModelText* text = nullptr;
    const Scheduler* scheduler = nullptr;  // as SampleReader's
    ActiveSamples* active = nullptr;       // lists samples while they are built
    BuildInstruments* instruments = nullptr;  // measures them; may be null
  };

  // `config` is a loaded one.
  FileSampleBuilder(const v1::Config& config, Job job);
  // A builder of the same server for another configuration of the job, whose
  // sources have the same numbers: both together keep to one
  // serve.decode_memory, list their samples and bad samples in one place, and
  // measure together.
  FileSampleBuilder(const v1::Config& config, Job job,
                    const FileSampleBuilder& other);

  absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const override;

  // The memory of serve.decode_memory.
  const DecodeBudget& decode_budget() const { return *decode_budget_; }
  // Ends all waits for this memory; a Build that takes more of it fails.
  void EndWaits() { decode_budget_->Close(); }

  const BadSamples& bad_samples() const { return *bad_samples_; }
  // Changes serve.max_bad_samples from now on.
  void SetMaxBadSamples(uint32_t most) { bad_samples_->SetMost(most); }

  // Images whose faults were skipped, as Pillow does; they count as good.
  uint64_t images_with_warnings() const {
    return encoders_.images_with_warnings();
  }
  // The sample's name for messages and lists, "docs:17", and its place.
  std::string GetName(uint32_t source, uint64_t ordinal) const;
  SampleLocation Locate(uint32_t source, uint64_t ordinal) const {
    return reader_.source(source).Locate(ordinal);
  }

 private:
  FileSampleBuilder(const v1::Config& config, Job job,
                    std::shared_ptr<DecodeBudget> decode_budget,
                    std::shared_ptr<BadSamples> bad_samples);
  // `job` with the lists and measures of `other`.
  static Job Beside(Job job, const FileSampleBuilder& other);
  // Calls the builder of the media that the module takes.
  absl::StatusOr<std::optional<DataFault>> BuildPayload(
      const SampleRequest& request, SampleWork* work) const;
  absl::StatusOr<SampleOutcome> Replace(const SampleRequest& request,
                                        const std::string& name,
                                        const DataFault& fault) const;

  const v1::Config config_;
  const ModelText* const text_;
  const std::shared_ptr<DecodeBudget> decode_budget_;
  const SampleVideoReader videos_;
  const std::unique_ptr<RowsReader> rows_;  // null: the model takes none
  const SampleReader reader_;
  mutable MediaChecks checks_;
  mutable EncoderBuilder encoders_;
  const LanguageBuilder language_;
  ActiveSamples* const active_;
  BuildInstruments* const instruments_;
  const std::shared_ptr<BadSamples> bad_samples_;
};

// Builds the samples of a job that is changed while it runs: samples of a step
// of train by the builder of its revision, samples of other splits by the first
// one, of the job's own configuration. Thread-safe.
template <typename Builder>
class BuilderOfSteps final : public SampleBuilder {
 public:
  explicit BuilderOfSteps(std::unique_ptr<Builder> own)
      : own_(std::move(own)) {}

  // Steps from `first_step` on, which is above any earlier Add's, are built by
  // `builder`.
  void Add(uint64_t first_step, std::unique_ptr<Builder> builder) {
    MutexLock lock(&mutex_);
    revisions_.emplace_back(first_step, std::move(builder));
  }

  absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const override {
    return At(request.split, request.step).Build(request);
  }

  const Builder& At(v1::Split split, uint64_t step) const {
    if (split != v1::SPLIT_TRAIN) return *own_;
    MutexLock lock(&mutex_);
    for (auto each = revisions_.rbegin(); each != revisions_.rend(); ++each) {
      if (each->first <= step) return *each->second;
    }
    return *own_;
  }

  Builder* own() const { return own_.get(); }

 private:
  const std::unique_ptr<Builder> own_;
  mutable Mutex mutex_;
  std::vector<std::pair<uint64_t, std::unique_ptr<Builder>>> revisions_
      ABSL_GUARDED_BY(mutex_);
};

using RevisedBuilder = BuilderOfSteps<FileSampleBuilder>;

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_
