#include "server/delivery/file_sample_builder.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/delivery/payload.h"
#include "server/delivery/placeholder.h"
#include "server/delivery/text_form.h"
#include "server/delivery/vision_gate.h"
#include "server/text/positions.h"

namespace ballast {
namespace {

// A count that differs from the index's.
absl::Status Changed(absl::string_view what, uint64_t found, uint64_t wanted) {
  return absl::DataLossError(absl::StrCat(
      "has ", found, " ", what, ", and had ", wanted,
      " when it was indexed; has the file changed? index the source again"));
}

// Each thread decodes with its own, so that they share nothing and keep their
// memory and tables from image to image.
ImageDecoder& ThreadDecoder(const ImageOptions& options) {
  thread_local std::unique_ptr<ImageDecoder> decoder;
  if (decoder == nullptr || !(decoder->options() == options)) {
    decoder = std::make_unique<ImageDecoder>(options);
  }
  return *decoder;
}

}  // namespace

FileSampleBuilder::FileSampleBuilder(const v1::Config& config,
                                     std::vector<const SampleSource*> sources,
                                     const Tokenizer* tokenizer,
                                     ActiveSamples* board,
                                     BuildInstruments* instruments)
    : config_(config),
      sources_(std::move(sources)),
      text_options_{tokenizer, &config_.model(), config_.batch().max_tokens(),
                    config_.batch().on_too_long()},
      image_options_(ImageOptionsOf(config_.model())),
      checks_images_(ChecksImages(config_)),
      board_(board),
      instruments_(instruments),
      bad_samples_(config_.serve().max_bad_samples()) {}

std::string FileSampleBuilder::NameOf(uint32_t source, uint64_t ordinal) const {
  return absl::StrCat(config_.sources(source).name(), ":", ordinal);
}

absl::StatusOr<SampleOutcome> FileSampleBuilder::Build(
    const SampleRequest& request) const {
  const bool vision = request.module == v1::MODULE_VISION;
  const uint32_t source = request.record.source;
  const uint64_t ordinal = request.record.ordinal;
  ActiveSample in_hand;
  in_hand.module = request.module;
  in_hand.position = request.record.position;
  in_hand.source = source;
  in_hand.ordinal = ordinal;
  in_hand.stage = "beginning";
  ActiveSamples::Scope work(board_, in_hand);
  std::string name;
  const absl::Status status = vision ? BuildVision(request, &name, &work)
                                     : BuildLanguage(request, &name, &work);
  if (vision) image_verdicts_.Put(request.record.position, status);
  if (status.ok()) return SampleOutcome::kBuilt;

  const std::string called =
      absl::StrCat(NameOf(source, ordinal),
                   name.empty() ? "" : absl::StrCat(" (", name, ")"));
  if (config_.serve().on_bad_sample() == v1::Serve::ON_BAD_SAMPLE_ERROR) {
    return absl::DataLossError(
        absl::StrCat("sample ", called, ": ", status.message()));
  }
  BALLAST_RETURN_IF_ERROR(bad_samples_.Add(source, ordinal, called,
                                           Locate(source, ordinal), status));
  if (instruments_ != nullptr) instruments_->placeholders.Add();
  if (vision) {
    FillVisionPlaceholder(request);
  } else {
    FillLanguagePlaceholder(request, config_.model());
  }
  return SampleOutcome::kPlaceholder;
}

absl::Status FileSampleBuilder::BuildVision(const SampleRequest& request,
                                            std::string* name,
                                            ActiveSamples::Scope* work) const {
  // A sample without images has nothing to read.
  if (!request.images.empty()) {
    BALLAST_RETURN_IF_ERROR(DecodeImages(
        request,
        [&request](size_t i) {
          return ImagePixels(request.images[i], request.payload);
        },
        name, work));
  }
  ClearVisionPadding(request);
  return absl::OkStatus();
}

absl::Status FileSampleBuilder::DecodeImages(const SampleRequest& request,
                                             Place place, std::string* name,
                                             ActiveSamples::Scope* work) const {
  work->Stage("reading images");
  const SampleSource& source = *sources_[request.record.source];
  Stopwatch reading(instruments_ ? &instruments_->read_images : nullptr);
  BALLAST_ASSIGN_OR_RETURN(
      const RawSample raw,
      source.Read(request.record.ordinal, {.text = false, .images = true}));
  reading.Stop();
  *name = raw.name;
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           source.index().sample(request.record.ordinal));
  const absl::Span<const ImageSize> sizes = indexed.images;
  if (raw.images.size() != request.grids.size() ||
      sizes.size() != request.grids.size()) {
    return Changed("images", raw.images.size(), request.grids.size());
  }
  ImageDecoder& decoder = ThreadDecoder(image_options_);
  for (size_t i = 0; i < request.grids.size(); ++i) {
    work->Stage("decoding an image");
    const ImageGrid& grid = request.grids[i];
    ImageHeader expected = {};
    expected.width = sizes[i].width;
    expected.height = sizes[i].height;
    const auto start = std::chrono::steady_clock::now();
    BALLAST_RETURN_IF_ERROR(
        Annotate(decoder.DecodeResized(raw.images[i], expected, grid.width,
                                       grid.height, place(i)),
                 absl::StrCat("image ", i)));
    CountImage(request.module, raw.images[i].size(), Stopwatch::Since(start),
               decoder.resize_time());
    // Language decodes the same images once more.
    if (decoder.warnings() > 0 && request.module == v1::MODULE_VISION) {
      images_with_warnings_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return absl::OkStatus();
}

void FileSampleBuilder::CountImage(v1::Module module, uint64_t bytes,
                                   absl::Duration whole,
                                   absl::Duration resize) const {
  if (instruments_ == nullptr) return;
  instruments_->decode.Record(whole - resize);
  instruments_->resize.Record(resize);
  instruments_->image_bytes.Add(bytes);
  Counter& images = module == v1::MODULE_VISION ? instruments_->images
                                                : instruments_->images_checked;
  images.Add();
}

absl::Status FileSampleBuilder::CheckImages(const SampleRequest& request,
                                            std::string* name,
                                            ActiveSamples::Scope* work) const {
  if (!checks_images_ || request.grids.empty()) return absl::OkStatus();
  const uint64_t position = request.record.position;
  if (const auto verdict = image_verdicts_.Get(position)) return *verdict;
  std::vector<uint8_t> nowhere;
  absl::Status verdict = DecodeImages(
      request,
      [&](size_t i) {
        nowhere.resize(size_t{3} * request.grids[i].height *
                       request.grids[i].width);
        return absl::MakeSpan(nowhere);
      },
      name, work);
  image_verdicts_.Put(position, verdict);
  return verdict;
}

absl::Status FileSampleBuilder::BuildLanguage(const SampleRequest& request,
                                              std::string* name,
                                              ActiveSamples::Scope* work) const {
  BALLAST_RETURN_IF_ERROR(CheckImages(request, name, work));
  work->Stage("reading text");
  Stopwatch reading(instruments_ ? &instruments_->read_text : nullptr);
  BALLAST_ASSIGN_OR_RETURN(
      const RawSample raw,
      sources_[request.record.source]->Read(request.record.ordinal,
                                            {.text = true, .images = false}));
  reading.Stop();
  *name = raw.name;
  work->Stage("tokenising");
  const Stopwatch tokenising(instruments_ ? &instruments_->tokenise : nullptr);
  BALLAST_ASSIGN_OR_RETURN(const TextSample text,
                           BuildText(raw.text, FormOf(raw.text_format),
                                     request.grids, text_options_));
  if (text.ids.size() != request.record.tokens) {
    return Changed("tokens", text.ids.size(), request.record.tokens);
  }
  if (instruments_ != nullptr) instruments_->tokens.Add(text.ids.size());
  const LanguageArrays arrays =
      OpenLanguagePayload(request, config_.model().position_axes());
  std::copy(text.ids.begin(), text.ids.end(), arrays.ids.begin());
  std::copy(text.labels.begin(), text.labels.end(), arrays.labels.begin());
  std::vector<GridThw> grids;
  for (const ImageGrid& grid : request.grids) {
    grids.push_back({1, grid.grid_h, grid.grid_w});
  }
  return ComputePositions(text.ids, grids, config_.model(), arrays.positions);
}

}  // namespace ballast
