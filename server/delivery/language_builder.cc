#include "server/delivery/language_builder.h"

#include <algorithm>
#include <vector>

#include "common/status_macros.h"
#include "server/delivery/encoder_gate.h"
#include "server/delivery/payload.h"
#include "server/delivery/text_form.h"

namespace ballast {

LanguageBuilder::LanguageBuilder(const v1::Config* config,
                                 const ModelText* text,
                                 const SampleReader* reader,
                                 ImageCheckCache* image_checks)
    : model_(config->model()),
      text_options_{text, config->batch().max_tokens(),
                    config->batch().on_too_long()},
      checks_images_(ChecksImages(*config)),
      reader_(reader),
      image_checks_(image_checks) {}

absl::StatusOr<std::optional<DataFault>> LanguageBuilder::Build(
    const SampleRequest& request, SampleWork* work) const {
  BALLAST_ASSIGN_OR_RETURN(std::optional<DataFault> of_images,
                           CheckImages(request, work));
  if (of_images.has_value()) return of_images;
  BALLAST_ASSIGN_OR_RETURN(const FaultOr<RawSample> raw,
                           reader_->ReadText(request, work));
  if (!raw.ok()) return raw.fault();
  work->active->Stage("tokenising");
  BuildInstruments* const instruments = reader_->instruments();
  const Stopwatch tokenising(instruments ? &instruments->tokenise : nullptr);
  BALLAST_ASSIGN_OR_RETURN(const std::vector<TileShape> sides,
                           reader_->ImageSides(request));
  BALLAST_ASSIGN_OR_RETURN(const SampleVideoText videos,
                           reader_->VideosOf(request));
  BALLAST_ASSIGN_OR_RETURN(const FaultOr<TextSample> text,
                           Tokenize(request, *raw, sides, videos));
  if (!text.ok()) return text.fault();
  if (instruments != nullptr) instruments->tokens.Add(text->ids.size());
  const LanguageArrays arrays =
      OpenLanguagePayload(request, model_.position_axes());
  std::copy(text->ids.begin(), text->ids.end(), arrays.ids.begin());
  std::copy(text->labels.begin(), text->labels.end(), arrays.labels.begin());
  const absl::Status placed = text_options_.text->Place(
      text->ids, sides, videos.grids, arrays.positions);
  if (const auto fault = ToDataFault(placed)) return fault;
  if (!placed.ok()) return placed;
  return std::nullopt;
}

absl::StatusOr<FaultOr<TextSample>> LanguageBuilder::Tokenize(
    const SampleRequest& request, const RawSample& raw,
    absl::Span<const TileShape> sides, const SampleVideoText& videos) const {
  const TextForm form = FormOf(raw.text_format);
  BALLAST_ASSIGN_OR_RETURN(
      FaultOr<TextSample> text,
      SeparateFault(
          BuildText(raw.text, form, sides, text_options_, videos.texts)));
  if (!text.ok()) return text;
  if (text->ids.size() != request.record.tokens) {
    return CountDiffers("tokens", text->ids.size(), request.record.tokens);
  }
  return text;
}

absl::StatusOr<std::optional<DataFault>> LanguageBuilder::CheckImages(
    const SampleRequest& request, SampleWork* work) const {
  if (!checks_images_ || request.grids.empty()) return std::nullopt;
  const uint64_t position = request.record.position;
  if (const auto known = image_checks_->Get(request.split, position)) {
    return known->fault;
  }
  BuildInstruments* const instruments = reader_->instruments();
  std::vector<uint8_t> dropped;
  BALLAST_ASSIGN_OR_RETURN(
      const FaultOr<uint32_t> decoded,
      reader_->ReadImages(
          request,
          [&](size_t i) {
            if (request.EncodedBytes(i) != 0) return absl::Span<uint8_t>();
            dropped.resize(size_t{3} * request.grids[i].height *
                           request.grids[i].width);
            return absl::MakeSpan(dropped);
          },
          instruments ? &instruments->check : nullptr, work));
  SampleCheck check;
  if (!decoded.ok()) check.fault = decoded.fault();
  image_checks_->Put(request.split, position, check);
  return check.fault;
}

}  // namespace ballast
