#include "server/delivery/file_sample_builder.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/delivery/payload.h"
#include "server/delivery/placeholder.h"
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
                                     const Tokenizer* tokenizer)
    : config_(config),
      sources_(std::move(sources)),
      text_options_{tokenizer, &config_.model(), config_.batch().max_tokens(),
                    config_.batch().on_too_long()},
      image_options_(ImageOptionsOf(config_.model())),
      bad_samples_(config_.serve().max_bad_samples()) {}

absl::StatusOr<SampleOutcome> FileSampleBuilder::Build(
    const SampleRequest& request) const {
  const bool vision = request.module == v1::MODULE_VISION;
  std::string name;
  const absl::Status status =
      vision ? BuildVision(request, &name) : BuildLanguage(request, &name);
  if (status.ok()) return SampleOutcome::kBuilt;

  const uint32_t source = request.record.source;
  const std::string called =
      absl::StrCat(config_.sources(source).name(), ":", request.record.ordinal,
                   name.empty() ? "" : absl::StrCat(" (", name, ")"));
  if (config_.serve().on_bad_sample() == v1::Serve::ON_BAD_SAMPLE_ERROR) {
    return absl::DataLossError(
        absl::StrCat("sample ", called, ": ", status.message()));
  }
  BALLAST_RETURN_IF_ERROR(
      bad_samples_.Add(source, request.record.ordinal, called, status));
  if (vision) {
    FillVisionPlaceholder(request);
  } else {
    FillLanguagePlaceholder(request, config_.model());
  }
  return SampleOutcome::kPlaceholder;
}

absl::Status FileSampleBuilder::BuildVision(const SampleRequest& request,
                                            std::string* name) const {
  // A sample without images has nothing to read.
  if (!request.images.empty()) {
    const SampleSource& source = *sources_[request.record.source];
    BALLAST_ASSIGN_OR_RETURN(
        const RawSample raw,
        source.Read(request.record.ordinal, {.text = false, .images = true}));
    *name = raw.name;
    const absl::Span<const ImageSize> sizes =
        source.index().sample(request.record.ordinal).images;
    if (raw.images.size() != request.images.size() ||
        sizes.size() != request.images.size()) {
      return Changed("images", raw.images.size(), request.images.size());
    }
    ImageDecoder& decoder = ThreadDecoder(image_options_);
    for (size_t i = 0; i < request.images.size(); ++i) {
      const ImageRecord& image = request.images[i];
      ImageHeader expected = {};
      expected.width = sizes[i].width;
      expected.height = sizes[i].height;
      BALLAST_RETURN_IF_ERROR(
          Annotate(decoder.DecodeResized(raw.images[i], expected, image.width,
                                         image.height,
                                         ImagePixels(image, request.payload)),
                   absl::StrCat("image ", i)));
      if (decoder.warnings() > 0) {
        images_with_warnings_.fetch_add(1, std::memory_order_relaxed);
      }
    }
  }
  ClearVisionPadding(request);
  return absl::OkStatus();
}

absl::Status FileSampleBuilder::BuildLanguage(const SampleRequest& request,
                                              std::string* name) const {
  BALLAST_ASSIGN_OR_RETURN(
      const RawSample raw,
      sources_[request.record.source]->Read(request.record.ordinal,
                                            {.text = true, .images = false}));
  *name = raw.name;
  BALLAST_ASSIGN_OR_RETURN(
      const TextSample text,
      raw.text_format == RawSample::TextFormat::kPlain
          ? BuildDocument(raw.text, request.grids, text_options_)
          : BuildConversation(raw.text, request.grids, text_options_));
  if (text.ids.size() != request.record.tokens) {
    return Changed("tokens", text.ids.size(), request.record.tokens);
  }
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
