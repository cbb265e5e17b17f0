#ifndef BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_
#define BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/sample_source.h"
#include "server/delivery/active_samples.h"
#include "server/delivery/bad_samples.h"
#include "server/delivery/decode_budget.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/image_check_cache.h"
#include "server/delivery/language_builder.h"
#include "server/delivery/sample_builder.h"
#include "server/delivery/sample_reader.h"
#include "server/delivery/vision_builder.h"
#include "server/text/model_text.h"

namespace ballast {

// Builds samples from their sources, by a VisionBuilder and a LanguageBuilder,
// and decides what becomes of a sample that fails:
//
//   data fault       serve.on_bad_sample: with `placeholder` the sample is
//                    listed as bad and a placeholder (placeholder.h) replaces
//                    it, until serve.max_bad_samples are listed. With `error`,
//                    and after that, Build returns DATA_LOSS naming the sample.
//   transient fault  UNAVAILABLE naming the sample; nothing is listed, and the
//                    next Build of it starts afresh.
class FileSampleBuilder : public SampleBuilder {
 public:
  // `config` is a loaded one; sources[i] belongs to config.sources(i). Nothing
  // is owned. `active` lists the samples being built, and `instruments`
  // measures them; both may be null.
  FileSampleBuilder(const v1::Config& config,
                    std::vector<const SampleSource*> sources,
                    const ModelText* text, ActiveSamples* active = nullptr,
                    BuildInstruments* instruments = nullptr);

  absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const override;

  // The memory of serve.decode_memory.
  const DecodeBudget& decode_budget() const { return decode_budget_; }
  // Ends waits for it; a Build that would need more fails.
  void EndWaits() { decode_budget_.Close(); }

  const BadSamples& bad_samples() const { return bad_samples_; }
  // Changes serve.max_bad_samples from now on.
  void SetMaxBadSamples(uint32_t most) { bad_samples_.SetMost(most); }

  // Images with faults that were skipped, as Pillow does; they count as good.
  uint64_t images_with_warnings() const {
    return vision_.images_with_warnings();
  }
  // The sample's name for messages and lists, "docs:17", and its place.
  std::string NameOf(uint32_t source, uint64_t ordinal) const;
  SampleLocation Locate(uint32_t source, uint64_t ordinal) const {
    return reader_.source(source).Locate(ordinal);
  }

 private:
  // Calls the builder of the media that the module takes.
  absl::StatusOr<std::optional<DataFault>> BuildPayload(
      const SampleRequest& request, SampleWork* work) const;
  absl::StatusOr<SampleOutcome> Replace(const SampleRequest& request,
                                        const std::string& name,
                                        const DataFault& fault) const;

  const v1::Config config_;
  const ModelText* const text_;
  mutable DecodeBudget decode_budget_;
  const SampleVideoReader videos_;
  const SampleReader reader_;
  mutable ImageCheckCache image_checks_;
  mutable VisionBuilder vision_;
  const LanguageBuilder language_;
  ActiveSamples* const active_;
  mutable BadSamples bad_samples_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_FILE_SAMPLE_BUILDER_H_
