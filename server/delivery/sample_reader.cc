#include "server/delivery/sample_reader.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// One per thread, so that threads share nothing and keep their memory and
// tables from image to image.
ImageDecoder& ThreadDecoder(const ImageOptions& options) {
  thread_local std::unique_ptr<ImageDecoder> decoder;
  if (decoder == nullptr || !(decoder->options() == options)) {
    decoder = std::make_unique<ImageDecoder>(options);
  }
  return *decoder;
}

// FAILED_PRECONDITION means that the image's size is not the indexed one.
std::optional<DataFault> FaultOfImage(const absl::Status& status) {
  if (absl::IsFailedPrecondition(status)) {
    return DataFault(std::string(status.message()));
  }
  return DataFaultOf(status);
}

}  // namespace

DataFault CountDiffers(absl::string_view what, uint64_t found,
                       uint64_t wanted) {
  return DataFault(absl::StrCat(
      "has ", found, " ", what, ", and had ", wanted,
      " when it was indexed; has the file changed? index the source again"));
}

SampleReader::SampleReader(std::vector<const SampleSource*> sources,
                           const ImageOptions& image_options,
                           BuildInstruments* instruments)
    : sources_(std::move(sources)),
      image_options_(image_options),
      instruments_(instruments) {}

absl::StatusOr<FaultOr<RawSample>> SampleReader::ReadText(
    const SampleRequest& request, SampleWork* work) const {
  work->active->Stage("reading text");
  const Stopwatch reading(instruments_ ? &instruments_->read_text : nullptr);
  absl::StatusOr<FaultOr<RawSample>> raw =
      source(request.record.source)
          .Read(request.record.ordinal, {.text = true, .images = false});
  if (raw.ok() && raw->ok()) work->name = (*raw)->name;
  return raw;
}

absl::StatusOr<FaultOr<uint32_t>> SampleReader::DecodeImages(
    const SampleRequest& request, Place place, Counter* decoded,
    SampleWork* work) const {
  work->active->Stage("reading images");
  const SampleSource& from = source(request.record.source);
  Stopwatch reading(instruments_ ? &instruments_->read_images : nullptr);
  BALLAST_ASSIGN_OR_RETURN(
      const FaultOr<RawSample> raw,
      from.Read(request.record.ordinal, {.text = false, .images = true}));
  reading.Stop();
  if (!raw.ok()) return raw.fault();
  work->name = raw->name;
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           from.index().sample(request.record.ordinal));
  const absl::Span<const ImageSize> sizes = indexed.images;
  if (raw->images.size() != request.grids.size() ||
      sizes.size() != request.grids.size()) {
    return CountDiffers("images", raw->images.size(), request.grids.size());
  }
  ImageDecoder& decoder = ThreadDecoder(image_options_);
  uint32_t warnings = 0;
  for (size_t i = 0; i < request.grids.size(); ++i) {
    work->active->Stage("decoding an image");
    const ImageGrid& grid = request.grids[i];
    ImageHeader expected = {};
    expected.width = sizes[i].width;
    expected.height = sizes[i].height;
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status =
        Annotate(decoder.DecodeResized(raw->images[i], expected, grid.width,
                                       grid.height, place(i)),
                 absl::StrCat("image ", i));
    if (const auto fault = FaultOfImage(status)) return *fault;
    if (!status.ok()) return status;
    warnings += decoder.warnings() > 0;
    if (instruments_ == nullptr) continue;
    const absl::Duration whole = Stopwatch::Since(start);
    instruments_->decode.Record(whole - decoder.resize_time());
    instruments_->resize.Record(decoder.resize_time());
    instruments_->image_bytes.Add(raw->images[i].size());
    if (decoded != nullptr) decoded->Add();
  }
  return warnings;
}

}  // namespace ballast
