#include "server/delivery/sample_reader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "proto/image/engine_jpeg.h"
#include "server/files/span_checksum.h"
#include "server/media/image/crop_maker.h"
#include "server/model/indexed_clip.h"
#include "server/sample/index_format.h"
#include "server/sample/raw_video.h"
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

// The content hashes of a sample for whose images the index has marks.
absl::StatusOr<absl::Span<const uint64_t>> GetHashes(
    const SourceIndex& index, uint64_t ordinal, const IndexedSample& indexed) {
  if (indexed.marks.empty()) return absl::Span<const uint64_t>();
  return index.content_hashes(ordinal);
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

// The fault of image `i`'s file if it is not the file that was indexed. An
// image that a check has found clean, or any if the index has all hashes, is
// compared whether it passes through or not, so that model.decode makes no
// difference. `encoded`: SampleRequest::EncodedBytes.
std::optional<DataFault> FindFileFault(absl::string_view file, size_t i,
                                       const IndexedSample& indexed,
                                       absl::Span<const uint64_t> hashes,
                                       bool is_hashed, uint32_t encoded) {
  if (is_hashed) {
    if (auto fault = FindContentFault(Checksum(file), hashes[i])) return fault;
  } else if (!indexed.marks.empty() &&
             indexed.marks[i].check() == ImageCheckResult::kClean) {
    return FindEncodedImageFault(file, indexed.marks[i].bytes(), hashes[i]);
  }
  if (encoded == 0) return std::nullopt;
  const auto fault = FindEncodedImageFault(file, encoded, std::nullopt);
  return fault ? fault : FindHeaderFault(file, indexed.images[i]);
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
                           const SampleVideoReader* videos, ClipReader* clips,
                           DecodeBudget* budget, BuildInstruments* instruments)
    : config_(config),
      sources_(std::move(sources)),
      image_options_(image_options),
      images_(images),
      scheduler_(scheduler),
      videos_(videos),
      clips_(clips),
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
  if (images_->recipe() == nullptr) return SampleImages(indexed.images);
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
                         ordered.epoch, indexed.images);
}

absl::StatusOr<MediaText> SampleReader::GetMediaText(
    const SampleRequest& request) const {
  BALLAST_ASSIGN_OR_RETURN(
      const IndexedSample indexed,
      source(request.record.source).index().sample(request.record.ordinal));
  absl::StatusOr<MediaText> text =
      PlanMediaText(images_->video(), images_->audio(), indexed.videos,
                    indexed.clips, indexed.times);
  if (text.ok()) return text;
  // The schedule would have reported it.
  return absl::InternalError(text.status().message());
}

absl::StatusOr<ClipPlan> SampleReader::PlanClip(
    const IndexedVideo& clip) const {
  if (images_->audio() == nullptr) {
    return absl::InternalError("audio, and the model takes none");
  }
  absl::StatusOr<ClipPlan> plan = PlanIndexedClip(*images_->audio(), clip);
  if (plan.ok()) return plan;
  // The schedule would have reported it.
  return absl::InternalError(plan.status().message());
}

absl::StatusOr<std::optional<DataFault>> SampleReader::ReadClips(
    const SampleRequest& request, Place place, DecodedCounters* decoded,
    SampleWork* work) const {
  work->active->Stage("reading audio");
  const SampleSource& from = source(request.record.source);
  // Its images are read by the builder that makes pixels of them.
  BALLAST_ASSIGN_OR_RETURN(
      const FaultOr<RawSample> raw,
      from.Read(request.record.ordinal,
                {.text = false, .images = true, .whole_images = false}));
  if (!raw.ok()) return raw.fault();
  work->name = raw->name;
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           from.index().sample(request.record.ordinal));
  if (raw->clips.size() != indexed.clips.size()) {
    return CountDiffers("clips of audio", raw->clips.size(),
                        indexed.clips.size());
  }
  if (indexed.clips.size() != request.clip_rows.size()) {
    return absl::InternalError(absl::StrCat(
        "it has ", indexed.clips.size(), " clips of audio, and the schedule ",
        request.clip_rows.size()));
  }
  BALLAST_ASSIGN_OR_RETURN(const absl::Span<const uint64_t> hashes,
                           from.index().video_hashes(request.record.ordinal));
  std::vector<float> dropped;
  for (size_t i = 0; i < raw->clips.size(); ++i) {
    const RawVideo& file = raw->clips[i];
    const std::string name = absl::StrCat("audio ", i);
    if (!hashes.empty()) {
      work->active->Stage("checking a clip's file");
      BALLAST_ASSIGN_OR_RETURN(const uint64_t found, HashVideo(file));
      // The hash says nothing about another version of the file.
      BALLAST_RETURN_IF_ERROR(CheckUnchanged(file));
      if (auto fault =
              FindContentFault(found, hashes[indexed.videos.size() + i])) {
        return fault->In(name);
      }
    }
    BALLAST_ASSIGN_OR_RETURN(const ClipPlan plan, PlanClip(indexed.clips[i]));
    if (plan.rows != request.clip_rows[i]) {
      return absl::InternalError(absl::StrCat(
          name, " has ", plan.rows, " rows of features, and the schedule ",
          request.clip_rows[i]));
    }
    const uint32_t width = GetClipShape(*images_->audio()).width();
    work->active->Stage("waiting for serve.decode_memory");
    BALLAST_ASSIGN_OR_RETURN(const DecodeBudget::Lease memory,
                             budget_->Take(ClipDecodeBytes(plan, width)));
    work->active->Stage("making features of audio");
    const Stopwatch decoding(instruments_ ? &instruments_->decode_audio
                                          : nullptr);
    const absl::Span<uint8_t> to = place(i);
    absl::Span<float> out(reinterpret_cast<float*>(to.data()),
                          to.size() / sizeof(float));
    if (to.empty()) {
      dropped.resize(size_t{plan.rows} * width);
      out = absl::MakeSpan(dropped);
    }
    const absl::Status status =
        Annotate(clips_->ReadFeatures(file, indexed.clips[i], plan, out), name);
    if (const auto fault = ToDataFault(status)) return fault;
    if (!status.ok()) return status;
    if (instruments_ != nullptr) instruments_->image_bytes.Add(file.size);
    if (decoded != nullptr) decoded->clips.Add();
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<DataFault>> SampleReader::ReadVideo(
    const RawVideo& raw, const IndexedVideo& indexed, FrameTimes times,
    uint64_t number, const SampleRequest& request, Place place,
    DecodedCounters* decoded, SampleWork* work, size_t* crop) const {
  work->active->Stage("decoding a video");
  const Stopwatch decoding(instruments_ ? &instruments_->decode_video
                                        : nullptr);
  BALLAST_ASSIGN_OR_RETURN(const VideoPlan plan, videos_->Plan(indexed, times));
  const size_t first = *crop;
  if (first + plan.frames.size() > request.grids.size() ||
      request.grids[first].height != plan.height ||
      request.grids[first].width != plan.width) {
    return absl::InternalError(absl::StrCat(
        "video ", number, " has ", plan.frames.size(), " frames of ",
        plan.width, "x", plan.height, " pixels, and the schedule other ones"));
  }
  *crop += plan.frames.size();
  const absl::Status status = Annotate(
      videos_->Read(raw, indexed, plan, &ThreadDecoder(image_options_),
                    [&](size_t frame) { return place(first + frame); }),
      absl::StrCat("video ", number));
  if (const auto fault = ToDataFault(status)) return fault;
  if (!status.ok()) return status;
  if (instruments_ != nullptr) instruments_->image_bytes.Add(raw.size);
  if (decoded != nullptr) {
    decoded->videos.Add();
    decoded->frames.Add(plan.frames.size());
  }
  return std::nullopt;
}

absl::StatusOr<FaultOr<uint32_t>> SampleReader::ReadImages(
    const SampleRequest& request, Place place, DecodedCounters* decoded,
    SampleWork* work) const {
  work->active->Stage("reading images");
  const SampleSource& from = source(request.record.source);
  Stopwatch reading(instruments_ ? &instruments_->read_images : nullptr);
  const auto place_of = [&](size_t image, size_t images, uint64_t size) {
    return PlaceOfFile(request, image, images, size, place);
  };
  const ImagePlaces places = place_of;
  BALLAST_ASSIGN_OR_RETURN(
      const FaultOr<RawSample> raw,
      from.Read(request.record.ordinal,
                {.text = false, .images = true, .places = &places}));
  reading.Stop();
  if (!raw.ok()) return raw.fault();
  work->name = raw->name;
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           from.index().sample(request.record.ordinal));
  const absl::Span<const ImageSize> sizes = indexed.images;
  if (raw->images.size() != sizes.size()) {
    return CountDiffers("images", raw->images.size(), sizes.size());
  }
  // Each image has at least one crop.
  if (sizes.size() > request.grids.size()) {
    return CountDiffers("images", sizes.size(), request.grids.size());
  }
  if (raw->videos.size() != indexed.videos.size()) {
    return CountDiffers("videos", raw->videos.size(), indexed.videos.size());
  }
  BALLAST_ASSIGN_OR_RETURN(
      const absl::Span<const uint64_t> hashes,
      GetHashes(from.index(), request.record.ordinal, indexed));
  BALLAST_ASSIGN_OR_RETURN(const absl::Span<const uint64_t> video_hashes,
                           from.index().video_hashes(request.record.ordinal));
  BALLAST_ASSIGN_OR_RETURN(const SampleImages images, GetImages(request));
  ImageDecoder& decoder = ThreadDecoder(image_options_);
  uint32_t warnings = 0;
  size_t crop = 0;  // of the sample
  FrameTimes times = indexed.times;
  for (MediaOrder order(sizes.size(), indexed.videos); order.Next();) {
    const uint64_t i = order.number();
    if (order.is_video()) {
      if (!video_hashes.empty()) {
        work->active->Stage("checking a video's file");
        BALLAST_ASSIGN_OR_RETURN(const uint64_t found,
                                 HashVideo(raw->videos[i]));
        // The hash says nothing about another version of the file.
        BALLAST_RETURN_IF_ERROR(CheckUnchanged(raw->videos[i]));
        if (auto fault = FindContentFault(found, video_hashes[i])) {
          return fault->In(absl::StrCat("video ", i));
        }
      }
      BALLAST_ASSIGN_OR_RETURN(
          const std::optional<DataFault> of_video,
          ReadVideo(raw->videos[i], indexed.videos[i],
                    TakeTimes(indexed.videos[i], &times), i, request, place,
                    decoded, work, &crop));
      if (of_video.has_value()) return *of_video;
      continue;
    }
    work->active->Stage("checking an image's file");
    const absl::string_view file = raw->image(i);
    absl::StatusOr<ImageCrops> planned =
        PlanCrops(*images_, images, i, request, crop);
    if (images_->recipe() != nullptr) {
      if (const auto fault = ToDataFault(planned.status())) {
        return fault->In(absl::StrCat("image ", i));
      }
    }
    if (!planned.ok()) return planned.status();
    const ImageCrops crops = *std::move(planned);
    const size_t first = std::exchange(crop, crop + crops.count);
    const uint32_t encoded = request.EncodedBytes(first);
    if (auto fault = FindFileFault(file, i, indexed, hashes,
                                   from.index().is_hashed(), encoded)) {
      return fault->In(absl::StrCat("image ", i));
    }
    if (encoded != 0) {
      const absl::Span<uint8_t> to = place(first);
      const void* const read = file.data();
      if (!to.empty() && read != to.data()) {
        std::memcpy(to.data(), read, file.size());
      }
      if (instruments_ != nullptr) instruments_->image_bytes.Add(file.size());
      continue;
    }
    work->active->Stage("waiting for serve.decode_memory");
    const ImageGrid& grid = request.grids[first];
    absl::StatusOr<uint64_t> needs =
        crops.is_cut ? decoder.Needs(file)
                     : decoder.Needs(file, grid.width, grid.height);
    if (const auto fault = ToDataFault(needs.status())) {
      return fault->In(absl::StrCat("image ", i));
    }
    if (!needs.ok()) return needs.status();
    if (crops.is_cut) {
      *needs += CropBytes(crops.plan, image_options_.resampling);
    }
    // Its way to the recipe's process and back.
    if (images_->has_pixels()) {
      *needs += uint64_t{6} * sizes[i].width * sizes[i].height;
    }
    BALLAST_ASSIGN_OR_RETURN(const DecodeBudget::Lease memory,
                             budget_->Take(*needs));
    work->active->Stage("decoding an image");
    ImageHeader expected = {};
    expected.width = sizes[i].width;
    expected.height = sizes[i].height;
    const auto start = std::chrono::steady_clock::now();
    absl::Duration resizing;
    absl::Status status;
    if (crops.is_cut) {
      status = DecodeAndCut(file, expected, images.Get(i), crops.plan,
                            images_->has_pixels() ? images_->recipe() : nullptr,
                            first, place, &decoder, &resizing);
    } else {
      status = decoder.DecodeResized(file, expected, grid.width, grid.height,
                                     place(first));
      resizing = decoder.resize_time();
    }
    status = Annotate(status, absl::StrCat("image ", i));
    if (const auto fault = ToDataFault(status)) return *fault;
    if (!status.ok()) return status;
    warnings += decoder.warnings() > 0;
    if (instruments_ == nullptr) continue;
    const absl::Duration whole = Stopwatch::Since(start);
    instruments_->decode.Record(whole - resizing);
    instruments_->resize.Record(resizing);
    instruments_->image_bytes.Add(file.size());
    if (decoded != nullptr) decoded->images.Add();
  }
  if (crop != request.grids.size()) {
    return absl::InternalError(absl::StrCat("its images have ", crop,
                                            " crops, and the schedule ",
                                            request.grids.size()));
  }
  return warnings;
}

}  // namespace ballast
