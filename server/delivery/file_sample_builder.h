#ifndef BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_
#define BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/config.pb.h"
#include "server/corpus/sample_source.h"
#include "server/delivery/bad_samples.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/image_verdicts.h"
#include "server/delivery/sample_builder.h"
#include "server/delivery/active_samples.h"
#include "server/image/image.h"
#include "server/text/text_sample.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Builds samples from their sources: vision reads, decodes and resizes the
// images straight into the payload; language reads the text, tokenises it and
// lays out ids, labels and positions.
//
// A sample that fails follows serve.on_bad_sample: with `placeholder` it is
// listed as bad and a placeholder (placeholder.h) takes its place, until
// serve.max_bad_samples are listed; with `error`, and after that, it is
// DATA_LOSS naming the sample.
//
// Where images that fail become grey, their text must not be supervised. So
// language goes by whether vision could decode the images of the same position;
// where vision has not been here (its ranks have another server, or come
// later) language decodes them itself, to nowhere. It does not where there is
// no vision module, or with `error`.
class FileSampleBuilder : public SampleBuilder {
 public:
  // `config` is a loaded one; sources[i] belongs to config.sources(i). Sources
  // and tokenizer are not owned, nor are `board`, which says what is being
  // built, and `instruments`, which count it; these two may be null.
  FileSampleBuilder(const v1::Config& config,
                    std::vector<const SampleSource*> sources,
                    const Tokenizer* tokenizer, ActiveSamples* board = nullptr,
                    BuildInstruments* instruments = nullptr);

  absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const override;

  const BadSamples& bad_samples() const { return bad_samples_; }
  // Another serve.max_bad_samples, from now on.
  void SetMaxBadSamples(uint32_t most) { bad_samples_.SetMost(most); }

  // Images with faults that were decoded past, as Pillow does; they count as
  // good.
  uint64_t images_with_warnings() const { return images_with_warnings_; }
  // "docs:17", for messages and lists; and where it lies.
  std::string NameOf(uint32_t source, uint64_t ordinal) const;
  SampleLocation Locate(uint32_t source, uint64_t ordinal) const {
    return sources_[source]->Locate(ordinal);
  }

 private:
  // Sets `name` to how the source calls the sample, once that is known.
  absl::Status BuildVision(const SampleRequest& request, std::string* name,
                           ActiveSamples::Scope* work) const;
  absl::Status BuildLanguage(const SampleRequest& request, std::string* name,
                             ActiveSamples::Scope* work) const;
  // Of the images that the text of a language request goes with.
  absl::Status CheckImages(const SampleRequest& request, std::string* name,
                           ActiveSamples::Scope* work) const;
  // Reads the images of the request's sample, and decodes and resizes image i
  // to `place(i)`.
  using Place = absl::FunctionRef<absl::Span<uint8_t>(size_t i)>;
  absl::Status DecodeImages(const SampleRequest& request, Place place,
                            std::string* name, ActiveSamples::Scope* work) const;

  void CountImage(v1::Module module, uint64_t bytes, absl::Duration whole,
                  absl::Duration resize) const;

  const v1::Config config_;
  const std::vector<const SampleSource*> sources_;
  const TextOptions text_options_;
  const ImageOptions image_options_;
  const bool checks_images_;
  ActiveSamples* const board_;
  BuildInstruments* const instruments_;
  mutable BadSamples bad_samples_;
  mutable ImageVerdicts image_verdicts_;
  mutable std::atomic<uint64_t> images_with_warnings_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_
