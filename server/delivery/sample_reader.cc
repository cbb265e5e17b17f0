#include "server/delivery/sample_reader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "proto/image/engine_jpeg.h"
#include "server/files/span_checksum.h"
#include "server/media/image/crop_maker.h"
#include "server/sample/index_format.h"
#include "server/sample/medium.h"
#include "server/sample/source_index.h"

namespace ballast {

std::optional<DataFault> FindEncodedImageFault(
    absl::string_view bytes, uint32_t encoded_bytes,
    std::optional<uint64_t> content_hash) {
  if (bytes.size() != encoded_bytes) {
    return DataFault(absl::StrCat("file of ", bytes.size(),
                                  " bytes, the index has ", encoded_bytes,
                                  "; has it changed? index the source again"));
  }
  if (!content_hash.has_value()) return std::nullopt;
  return FindContentFault(SpanChecksum(bytes), *content_hash);
}

std::optional<DataFault> FindContentFault(uint64_t found, uint64_t indexed) {
  if (found == indexed) return std::nullopt;
  return DataFault(absl::StrFormat(
      "file of hash %016x, and it had %016x when `index` read it; restore it, "
      "or "
      "index the source again with --rebuild, and --check or --hash as before",
      found, indexed));
}

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

// The fault of a file that JPEG engines cannot decode although the index marks
// it for them.
std::optional<DataFault> FindHeaderFault(absl::string_view file,
                                         const ImageSize& size) {
  const auto judged = JudgeForEngines(file);
  std::string found;
  if (!judged.ok()) {
    found = std::string(judged.status().message());
  } else if (judged->refusal != EngineRefusal::kNone) {
    found = std::string(EngineRefusalText(judged->refusal));
  } else if (!HasJpegEnd(file)) {
    found = std::string(EngineRefusalText(EngineRefusal::kEnd));
  } else if (judged->form.width != size.width ||
             judged->form.height != size.height) {
    found = absl::StrCat(judged->form.width, "x", judged->form.height,
                         " pixels instead of ", size.width, "x", size.height);
  } else {
    return std::nullopt;
  }
  return DataFault(absl::StrCat(
      "no longer a JPEG that engines take (", found,
      "); has the file changed? index the source again, with --check"));
}

// The fault of an image's file if it is not the file that was indexed. An
// image that a check has found clean, or any if the index has all hashes, is
// compared whether it passes through or not, so that model.decode makes no
// difference. `encoded`: SampleRequest::EncodedBytes.
std::optional<DataFault> FindFileFault(absl::string_view file,
                                       const IndexedMedium& indexed,
                                       const uint64_t* hash, bool is_hashed,
                                       uint32_t encoded) {
  if (hash != nullptr && is_hashed) {
    if (auto fault = FindContentFault(Checksum(file), *hash)) return fault;
  } else if (hash != nullptr &&
             indexed.mark.check() == ImageCheckResult::kClean) {
    return FindEncodedImageFault(file, indexed.mark.bytes(), *hash);
  }
  if (encoded == 0) return std::nullopt;
  const auto fault = FindEncodedImageFault(file, encoded, std::nullopt);
  return fault ? fault : FindHeaderFault(file, indexed.size);
}

// The crops of one image.
struct ImageCrops {
  uint32_t count = 1;
  // True if the crops are more than the whole image resized once: `plan` says
  // how to make them.
  bool is_cut = false;
  ImagePlan plan;
};

// The crops of image `i`. The request must have as many crops from `first` on.
// Errors: as ModelImages::Plan; INTERNAL (the schedule was made by another
// plan).
absl::StatusOr<ImageCrops> PlanCrops(const ModelImages& model,
                                     const SampleImages& images, size_t i,
                                     const SampleRequest& request,
                                     size_t first) {
  const ImageSize& size = images.sides[i];
  ImageCrops crops;
  BALLAST_ASSIGN_OR_RETURN(crops.plan, model.Plan(images, i));
  crops.count = crops.plan.crops;
  crops.is_cut =
      model.has_pixels() || !IsOneResize(crops.plan, size.height, size.width);
  if (first + crops.count > request.grids.size()) {
    return absl::InternalError(absl::StrCat(
        "an image of ", size.width, "x", size.height, " pixels has ",
        crops.count, " crops, and the schedule has ", request.grids.size(),
        " for the whole sample"));
  }
  size_t at = first;
  for (const PlanStage& stage : crops.plan.stages) {
    for (uint32_t k = 0; k < stage.rows * stage.columns; ++k, ++at) {
      const ImageGrid& grid = request.grids[at];
      if (grid.height == stage.crop.height && grid.width == stage.crop.width) {
        continue;
      }
      return absl::InternalError(absl::StrCat(
          "crop ", at, " of the sample is planned as ", stage.crop.width, "x",
          stage.crop.height, " pixels, and the schedule has ", grid.width, "x",
          grid.height));
    }
  }
  return crops;
}

// The place to read the file of image `image` to; nullptr if it has none, or
// the image does not pass through encoded. `images`: number of images of the
// sample. Only if each image of the sample is one crop, is an image's number
// also its crop's number.
char* PlaceOfFile(const SampleRequest& request, size_t image, size_t images,
                  uint64_t size, SampleReader::Place place) {
  if (image >= images || images != request.grids.size() || size == 0 ||
      size != request.EncodedBytes(image)) {
    return nullptr;
  }
  const absl::Span<uint8_t> to = place(image);
  return to.size() == size ? reinterpret_cast<char*>(to.data()) : nullptr;
}

// Decodes an image and makes its crops, each at `place` from `first` on;
// `recipe` makes them unless it is null.
absl::Status DecodeAndCut(absl::string_view file, const ImageHeader& expected,
                          const PlanFacts& facts, const ImagePlan& plan,
                          const ImageRecipe* recipe, size_t first,
                          SampleReader::Place place, ImageDecoder* decoder,
                          absl::Duration* resizing) {
  BALLAST_ASSIGN_OR_RETURN(const RgbImage image, decoder->Decode(file));
  if (image.width != expected.width || image.height != expected.height) {
    return DataFaultError(
        absl::StrCat(image.width, "x", image.height, " pixels instead of ",
                     expected.width, "x", expected.height,
                     "; has the file changed? index the source again"));
  }
  const auto start = std::chrono::steady_clock::now();
  if (recipe != nullptr) {
    std::vector<absl::Span<uint8_t>> places;
    // Crops may be dropped, and then have one place.
    for (uint32_t i = 0; i < plan.crops; ++i)
      places.push_back(place(first + i));
    BALLAST_RETURN_IF_ERROR(
        recipe->MakePixels(facts, plan, image.pixels, places));
    *resizing = Stopwatch::Since(start);
    return absl::OkStatus();
  }
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<RgbImage> crops,
      MakeCrops(image, plan, decoder->options().resampling));
  for (size_t i = 0; i < crops.size(); ++i) {
    const absl::Span<uint8_t> to = place(first + i);
    if (to.size() != crops[i].pixels.size()) {
      return absl::InternalError(
          absl::StrCat("crop ", i, " has ", crops[i].pixels.size(),
                       " bytes, and the schedule ", to.size()));
    }
    std::copy(crops[i].pixels.begin(), crops[i].pixels.end(), to.begin());
  }
  *resizing = Stopwatch::Since(start);
  return absl::OkStatus();
}

}  // namespace

bool MayBeInCopy(absl::Time modified, absl::Time now) {
  // A file server's clock may be ahead.
  return absl::AbsDuration(now - modified) < absl::Minutes(1);
}

DataFault CountDiffers(absl::string_view what, uint64_t found,
                       uint64_t wanted) {
  return DataFault(absl::StrCat(
      "has ", found, " ", what, ", and had ", wanted,
      " when it was indexed; has the file changed? index the source again"));
}

SampleReader::SampleReader(const v1::Config* config,
                           std::vector<const SampleSource*> sources,
                           const ImageOptions& image_options,
                           const ModelImages* images,
                           const Scheduler* scheduler,
                           const SampleVideoReader* video_reader,
                           RowsReader* rows_reader, DecodeBudget* budget,
                           BuildInstruments* instruments)
    : config_(config),
      sources_(std::move(sources)),
      image_options_(image_options),
      images_(images),
      scheduler_(scheduler),
      video_reader_(video_reader),
      rows_reader_(rows_reader),
      budget_(budget),
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

absl::StatusOr<SampleImages> SampleReader::GetImages(
    const SampleRequest& request) const {
  BALLAST_ASSIGN_OR_RETURN(
      const IndexedSample indexed,
      source(request.record.source).index().sample(request.record.ordinal));
  if (images_->recipe() == nullptr) {
    return SampleImages(indexed.media.images());
  }
  if (scheduler_ == nullptr) {
    return absl::InternalError("a recipe of the model without a scheduler");
  }
  BALLAST_ASSIGN_OR_RETURN(const Scheduler* const of_split,
                           scheduler_->OfSplit(request.split));
  const Scheduler::OrderedSample ordered =
      of_split->OrderedAt(request.record.position);
  if (ordered.source != request.record.source ||
      ordered.ordinal != request.record.ordinal) {
    return absl::InternalError(absl::StrCat(
        "position ", request.record.position, " is another sample's"));
  }
  return GetSampleImages(*config_, ordered.source, ordered.ordinal,
                         ordered.epoch, indexed.media.images());
}

absl::StatusOr<MediaText> SampleReader::GetMediaText(
    const SampleRequest& request) const {
  BALLAST_ASSIGN_OR_RETURN(
      const IndexedSample indexed,
      source(request.record.source).index().sample(request.record.ordinal));
  absl::StatusOr<MediaText> text =
      PlanMediaText(images_->video(), images_->rows(), indexed.media);
  if (text.ok()) return text;
  // The schedule would have reported it.
  return absl::InternalError(text.status().message());
}

absl::Status SampleReader::WriteRows(const RawMedium& raw,
                                     const IndexedMedium& indexed,
                                     Reading* reading) const {
  const RowsRule* const rule = images_->rows();
  if (rule == nullptr || rule->kind() != indexed.kind) {
    return absl::InternalError(
        absl::StrCat("the model takes no ", MediumName(indexed.kind)));
  }
  const absl::StatusOr<RowsPlan> plan = rule->Plan(*indexed.stream);
  // The schedule would have reported it.
  if (!plan.ok()) return absl::InternalError(plan.status().message());
  const size_t number = reading->next++;
  const absl::Span<const uint32_t> rows = reading->request.clip_rows;
  if (number >= rows.size() || plan->rows != rows[number]) {
    return absl::InternalError(absl::StrCat(
        plan->rows, " rows of features, and the schedule has other ones"));
  }
  reading->work->active->Stage("waiting for serve.decode_memory");
  BALLAST_ASSIGN_OR_RETURN(const DecodeBudget::Lease memory,
                           budget_->Take(plan->decode_bytes));
  reading->work->active->Stage(indexed.kind == MediumKind::kAudio
                                   ? "making features of audio"
                                   : "making rows of a medium");
  const Stopwatch decoding(instruments_ ? &instruments_->decode_audio
                                        : nullptr);
  const absl::Span<uint8_t> to = reading->place(number);
  absl::Span<float> out(reinterpret_cast<float*>(to.data()),
                        to.size() / sizeof(float));
  std::vector<float> dropped;
  if (to.empty()) {
    dropped.resize(size_t{plan->rows} * rule->shape().width());
    out = absl::MakeSpan(dropped);
  }
  BALLAST_RETURN_IF_ERROR(rows_reader_->Write(raw, *indexed.stream, out));
  if (reading->decoded != nullptr) reading->decoded->media[indexed.kind].Add();
  return absl::OkStatus();
}

absl::Status SampleReader::WriteVideo(const RawMedium& raw,
                                      const IndexedMedium& indexed,
                                      Reading* reading) const {
  reading->work->active->Stage("decoding a video");
  const Stopwatch decoding(instruments_ ? &instruments_->decode_video
                                        : nullptr);
  BALLAST_ASSIGN_OR_RETURN(const VideoPlan plan,
                           video_reader_->Plan(*indexed.stream, indexed.times));
  const size_t first = reading->next;
  const absl::Span<const ImageGrid> grids = reading->request.grids;
  if (first + plan.frames.size() > grids.size() ||
      grids[first].height != plan.height || grids[first].width != plan.width) {
    return absl::InternalError(
        absl::StrCat(plan.frames.size(), " frames of ", plan.width, "x",
                     plan.height, " pixels, and the schedule has other ones"));
  }
  reading->next += plan.frames.size();
  BALLAST_RETURN_IF_ERROR(video_reader_->Read(
      raw, *indexed.stream, plan, &ThreadDecoder(image_options_),
      [&](size_t frame) { return reading->place(first + frame); }));
  if (reading->decoded != nullptr) {
    reading->decoded->media[MediumKind::kVideo].Add();
    reading->decoded->frames.Add(plan.frames.size());
  }
  return absl::OkStatus();
}

absl::Status SampleReader::WriteImage(const RawMedium& raw,
                                      const IndexedMedium& indexed,
                                      const uint64_t* hash,
                                      Reading* reading) const {
  SampleWork* const work = reading->work;
  const SampleRequest& request = reading->request;
  const size_t i = indexed.number;
  work->active->Stage("checking an image's file");
  const absl::string_view file = raw.file();
  absl::StatusOr<ImageCrops> planned =
      PlanCrops(*images_, reading->images, i, request, reading->next);
  // Without a recipe the schedule would have reported it.
  if (!planned.ok() && images_->recipe() == nullptr) {
    return absl::InternalError(planned.status().message());
  }
  BALLAST_RETURN_IF_ERROR(planned.status());
  const ImageCrops crops = *std::move(planned);
  const size_t first =
      std::exchange(reading->next, reading->next + crops.count);
  const uint32_t encoded = request.EncodedBytes(first);
  if (const auto fault =
          FindFileFault(file, indexed, hash, reading->is_hashed, encoded)) {
    return fault->ToStatus();
  }
  reading->is_proven =
      hash != nullptr &&
      (reading->is_hashed || indexed.mark.check() == ImageCheckResult::kClean);
  if (encoded != 0) {
    const absl::Span<uint8_t> to = reading->place(first);
    if (!to.empty() && static_cast<const void*>(file.data()) != to.data()) {
      std::memcpy(to.data(), file.data(), file.size());
    }
    return absl::OkStatus();
  }
  work->active->Stage("waiting for serve.decode_memory");
  ImageDecoder& decoder = ThreadDecoder(image_options_);
  const ImageGrid& grid = request.grids[first];
  BALLAST_ASSIGN_OR_RETURN(uint64_t needs,
                           crops.is_cut
                               ? decoder.Needs(file)
                               : decoder.Needs(file, grid.width, grid.height));
  if (crops.is_cut) needs += CropBytes(crops.plan, image_options_.resampling);
  // Its way to the recipe's process and back.
  if (images_->has_pixels()) {
    needs += uint64_t{6} * indexed.size.width * indexed.size.height;
  }
  BALLAST_ASSIGN_OR_RETURN(const DecodeBudget::Lease memory,
                           budget_->Take(needs));
  work->active->Stage("decoding an image");
  ImageHeader expected = {};
  expected.width = indexed.size.width;
  expected.height = indexed.size.height;
  const auto start = std::chrono::steady_clock::now();
  absl::Duration resizing;
  if (crops.is_cut) {
    BALLAST_RETURN_IF_ERROR(
        DecodeAndCut(file, expected, reading->images.Get(i), crops.plan,
                     images_->has_pixels() ? images_->recipe() : nullptr, first,
                     reading->place, &decoder, &resizing));
  } else {
    BALLAST_RETURN_IF_ERROR(decoder.DecodeResized(
        file, expected, grid.width, grid.height, reading->place(first)));
    resizing = decoder.resize_time();
  }
  reading->warnings += decoder.warnings() > 0;
  if (instruments_ == nullptr) return absl::OkStatus();
  instruments_->decode.Record(Stopwatch::Since(start) - resizing);
  instruments_->resize.Record(resizing);
  if (reading->decoded != nullptr)
    reading->decoded->media[MediumKind::kImage].Add();
  return absl::OkStatus();
}

absl::StatusOr<FaultOr<uint32_t>> SampleReader::ReadMedia(
    const SampleRequest& request, Media media, Place place,
    DecodedCounters* decoded, SampleWork* work) const {
  const bool in_rows = media == Media::kRows;
  work->active->Stage(in_rows ? "reading audio" : "reading images");
  const SampleSource& from = source(request.record.source);
  Stopwatch reading_time(instruments_ && !in_rows ? &instruments_->read_images
                                                  : nullptr);
  const auto place_of = [&](size_t image, size_t images, uint64_t size) {
    return PlaceOfFile(request, image, images, size, place);
  };
  const ImagePlaces places = place_of;
  // Beside audio, images are read by the builder that makes pixels of them.
  BALLAST_ASSIGN_OR_RETURN(const FaultOr<RawSample> raw,
                           from.Read(request.record.ordinal,
                                     {.text = false,
                                      .images = true,
                                      .whole_images = !in_rows,
                                      .places = in_rows ? nullptr : &places}));
  reading_time.Stop();
  if (!raw.ok()) return raw.fault();
  work->name = raw->name;
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           from.index().sample(request.record.ordinal));
  for (const MediumKind kind : MediumKinds()) {
    const size_t found = raw->of(kind).size();
    const size_t wanted = indexed.media.count(kind);
    if (found != wanted) {
      return CountDiffers(WordsOf(kind).many, found, wanted);
    }
  }
  BALLAST_ASSIGN_OR_RETURN(const MediaHashes hashes,
                           from.index().media_hashes(request.record.ordinal));
  BALLAST_ASSIGN_OR_RETURN(const SampleImages images, GetImages(request));
  Reading reading = {request, place,  decoded,
                     work,    images, from.index().is_hashed()};
  const auto write = [&](const RawMedium& medium,
                         const IndexedMedium& of_index) -> absl::Status {
    const uint64_t* const hash = hashes.Find(of_index, indexed.media);
    if (of_index.kind == MediumKind::kImage) {
      return WriteImage(medium, of_index, hash, &reading);
    }
    if (hash != nullptr) {
      work->active->Stage(in_rows ? "checking a clip's file"
                                  : "checking a video's file");
      BALLAST_ASSIGN_OR_RETURN(const uint64_t found, HashMedium(medium));
      // The hash says nothing about another version of the file.
      BALLAST_RETURN_IF_ERROR(CheckUnchanged(medium));
      if (auto fault = FindContentFault(found, *hash)) return fault->ToStatus();
      reading.is_proven = true;
    }
    return in_rows ? WriteRows(medium, of_index, &reading)
                   : WriteVideo(medium, of_index, &reading);
  };
  auto medium = raw->media.begin();
  for (const IndexedMedium& of_index : indexed.media) {
    const RawMedium& of_sample = *medium++;
    if (TravelsAsRows(of_index.kind) != in_rows) continue;
    reading.is_proven = false;
    const absl::Status written =
        Annotate(write(of_sample, of_index), of_index.name());
    if (auto fault = ToDataFault(written)) {
      if (reading.is_proven || !MayBeInCopy(raw->media_modified, absl::Now())) {
        return *std::move(fault);
      }
      return absl::UnavailableError(absl::StrCat(
          raw->name, ": ", written.message(),
          "; a file of this sample was modified ",
          absl::FormatDuration(
              absl::Trunc(absl::Now() - raw->media_modified, absl::Seconds(1))),
          " ago, after all that the index knows, and may be in the midst of a "
          "copy. Once it is left alone for a minute its bytes decide"));
    }
    BALLAST_RETURN_IF_ERROR(written);
    if (instruments_ != nullptr) {
      instruments_->media_bytes.Add(of_sample.file().size() + of_sample.size);
    }
  }
  const size_t planned =
      in_rows ? request.clip_rows.size() : request.grids.size();
  if (reading.next != planned) {
    return absl::InternalError(absl::StrCat(
        "its media give ", reading.next, in_rows ? " of audio" : " crops",
        ", and the schedule has ", planned));
  }
  return reading.warnings;
}

}  // namespace ballast
