#ifndef BALLAST_SERVER_DELIVERY_SAMPLE_READER_H_
#define BALLAST_SERVER_DELIVERY_SAMPLE_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/schedule/module.h"
#include "server/delivery/block.h"
#include "server/delivery/decode_budget.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/sample_video_reader.h"
#include "server/delivery/stall_watchdog.h"
#include "server/media/image/image.h"
#include "server/media/image_plan/image_text.h"
#include "server/media/rows_rule.h"
#include "server/model/model_images.h"
#include "server/sample/data_fault.h"
#include "server/sample/sample_source.h"
#include "server/schedule/scheduler.h"
#include "server/text/media_text.h"

namespace ballast {

// Returns the fault of an image's file if it is not the file that was indexed:
// `bytes` has another length than `encoded_bytes`
// (IndexedSample::encoded_bytes), or another hash than `content_hash`
// (SourceIndex::media_hashes; nullopt: the image has not been checked). Pure.
std::optional<DataFault> FindEncodedImageFault(
    absl::string_view bytes, uint32_t encoded_bytes,
    std::optional<uint64_t> content_hash);

// Returns the fault of a file of hash `found` if the index has `indexed`. Pure.
std::optional<DataFault> FindContentFault(uint64_t found, uint64_t indexed);

// One call of FileSampleBuilder::Build, as its steps report it.
struct SampleWork {
  ActiveSamples::Scope* active;
  std::string name;  // in its source; empty until the sample has been read
};

// Whether a file that was modified at `modified`, and is not known to be the
// indexed one, may be in the midst of being written: a program that copies in
// place may begin with the whole length, and write the end last. Pure.
bool MayBeInCopy(absl::Time modified, absl::Time now);

// The fault of a sample whose number of `what` is not the indexed one.
DataFault CountDiffers(absl::string_view what, uint64_t found, uint64_t wanted);

// Reads samples from the job's sources, and decodes or checks their images, for
// the builders of both modules. Thread-safe.
class SampleReader {
 public:
  // The sources are in order of `config`. They and `instruments`, which may be
  // null, are not owned.
  // `images`, not owned, are the model's; `scheduler`, not owned, has the
  // epochs of samples, which nothing but a recipe of the model needs: else it
  // may be null. `video_reader` and `rows_reader`, not owned, have the same
  // model; `rows_reader` is null if the model takes no media that travel as
  // rows. `budget`, not owned, has the memory to decode in.
  SampleReader(const v1::Config* config,
               std::vector<const SampleSource*> sources,
               const ImageOptions& image_options, const ModelImages* images,
               const Scheduler* scheduler,
               const SampleVideoReader* video_reader, RowsReader* rows_reader,
               DecodeBudget* budget, BuildInstruments* instruments);

  // Blocks on the disk. Non-OK statuses are transient faults.
  absl::StatusOr<FaultOr<RawSample>> ReadText(const SampleRequest& request,
                                              SampleWork* work) const;

  // Reads the media of the sample that an encoder of `media` takes, and writes
  // what travels of them to `place(i)`: of an encoder of images crop or frame
  // i, as the model's processor makes it, height*width*3 bytes; of one of media
  // that travel as rows the rows of medium i. If crop i passes through encoded
  // (request.EncodedBytes), writes its image's file there instead, read
  // straight from the source where possible, and checks that it is the file
  // that was indexed. If `place(i)` is empty, a file is only checked, and
  // features are only made. Counts media and frames in `decoded`, which may be
  // null. Returns how many images had faults that were skipped. Blocks on the
  // disk. Non-OK statuses are transient faults.
  using Place = absl::FunctionRef<absl::Span<uint8_t>(size_t i)>;
  absl::StatusOr<FaultOr<uint32_t>> ReadMedia(const SampleRequest& request,
                                              Media media, Place place,
                                              DecodedCounters* decoded,
                                              SampleWork* work) const;

  // The sample's images, as their plans see them, from the index. Blocks on the
  // disk. Errors: as SourceIndex::sample and Scheduler::OfSplit; INTERNAL (a
  // recipe without a scheduler).
  absl::StatusOr<SampleImages> GetImages(const SampleRequest& request) const;

  // The text of the sample's media that run in time, from the index. Errors: as
  // SourceIndex::sample; INTERNAL.
  absl::StatusOr<MediaText> GetMediaText(const SampleRequest& request) const;

  const SampleSource& source(uint32_t number) const {
    return *sources_[number];
  }
  // May be null.
  BuildInstruments* instruments() const { return instruments_; }

 private:
  // One ReadMedia, while it reads medium by medium.
  struct Reading {
    const SampleRequest& request;
    Place place;
    DecodedCounters* decoded;
    SampleWork* work;
    const SampleImages& images;
    // Of the source's index: every medium has its hash.
    bool is_hashed;
    // The medium's bytes have been compared with the indexed hash.
    bool is_proven = false;
    size_t next = 0;  // the crop or clip of the request to write
    uint32_t warnings = 0;
  };

  // Each writes one medium, and moves `reading.next` past it. `hash`: the
  // indexed one, or null. Errors: data faults; transient ones.
  absl::Status WriteImage(const RawMedium& raw, const IndexedMedium& indexed,
                          const uint64_t* hash, Reading* reading) const;
  absl::Status WriteVideo(const RawMedium& raw, const IndexedMedium& indexed,
                          Reading* reading) const;
  absl::Status WriteRows(const RawMedium& raw, const IndexedMedium& indexed,
                         Reading* reading) const;

  const v1::Config* const config_;
  const std::vector<const SampleSource*> sources_;
  const ImageOptions image_options_;
  const ModelImages* const images_;
  const Scheduler* const scheduler_;
  const SampleVideoReader* const video_reader_;
  RowsReader* const rows_reader_;
  DecodeBudget* const budget_;
  BuildInstruments* const instruments_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_SAMPLE_READER_H_
