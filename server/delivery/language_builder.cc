#include "server/delivery/language_builder.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "server/data/jsonl/pair_json.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/payload.h"
#include "server/text/sample_fields.h"

namespace ballast {

LanguageBuilder::LanguageBuilder(const v1::Config* config,
                                 const ModelText* text,
                                 const SampleReader* reader,
                                 MediaChecks* checks)
    : model_(config->model()),
      text_options_{text, config->batch().max_tokens(),
                    config->batch().on_too_long()},
      reader_(reader),
      checks_(checks) {
  for (const v1::Source& source : config->sources()) {
    fields_.push_back(GetFieldSpecs(source));
  }
}

absl::StatusOr<std::optional<DataFault>> LanguageBuilder::Build(
    const SampleRequest& request, SampleWork* work) const {
  BALLAST_ASSIGN_OR_RETURN(std::optional<DataFault> of_media,
                           checks_->Check(request, Media::kText, work));
  if (of_media.has_value()) return of_media;
  BALLAST_ASSIGN_OR_RETURN(const FaultOr<RawSample> raw,
                           reader_->ReadText(request, work));
  if (!raw.ok()) return raw.fault();
  work->active->Stage("tokenising");
  BuildInstruments* const instruments = reader_->instruments();
  const Stopwatch tokenising(instruments ? &instruments->tokenise : nullptr);
  BALLAST_ASSIGN_OR_RETURN(const SampleImages images,
                           reader_->GetImages(request));
  BALLAST_ASSIGN_OR_RETURN(const MediaText streams,
                           reader_->GetMediaText(request));
  BALLAST_ASSIGN_OR_RETURN(const FaultOr<std::vector<TextSample>> texts,
                           Tokenize(request, *raw, images, streams));
  if (!texts.ok()) return texts.fault();
  if (instruments != nullptr) instruments->tokens.Add(request.record.tokens);
  const std::vector<LanguageArrays> all =
      OpenLanguagePayload(request, model_.position_axes(),
                          CountFields(GetFields(request.record.source)));
  for (size_t i = 0; i < all.size(); ++i) {
    const TextSample& text = (*texts)[i];
    std::copy(text.ids.begin(), text.ids.end(), all[i].ids.begin());
    std::copy(text.labels.begin(), text.labels.end(), all[i].labels.begin());
    std::copy(text.field_values.begin(), text.field_values.end(),
              all[i].values.begin());
    std::copy(text.field_rows.begin(), text.field_rows.end(),
              all[i].rows.begin());
    const absl::Status placed = text_options_.text->Place(
        text.ids, images, streams.grids, all[i].positions);
    if (const auto fault = ToDataFault(placed)) return fault;
    if (!placed.ok()) return placed;
  }
  return std::nullopt;
}

absl::StatusOr<FaultOr<std::vector<TextSample>>> LanguageBuilder::Tokenize(
    const SampleRequest& request, const RawSample& raw,
    const SampleImages& images, const MediaText& streams) const {
  using Texts = std::vector<TextSample>;
  const TextFields fields =
      GetTextFields(raw, GetFields(request.record.source));
  const auto build = [&]() -> absl::StatusOr<Texts> {
    if (raw.text_format == RawSample::TextFormat::kPair) {
      const PairTexts pair = GetPairTexts(raw.text);
      BALLAST_ASSIGN_OR_RETURN(
          auto both,
          BuildPair(pair.chosen, pair.rejected, images, text_options_, fields));
      return Texts{std::move(both[0]), std::move(both[1])};
    }
    BALLAST_ASSIGN_OR_RETURN(
        TextSample text, BuildText(raw.text, GetForm(raw.text_format), images,
                                   text_options_, streams.texts, fields));
    return Texts{std::move(text)};
  };
  BALLAST_ASSIGN_OR_RETURN(FaultOr<Texts> texts, SeparateFault(build()));
  if (!texts.ok()) return texts;
  const SampleRecord& record = request.record;
  const bool is_pair = texts->size() == 2;
  const size_t first = is_pair ? (*texts)[0].ids.size() : 0;
  if (first != record.first_tokens) {
    return CountDiffers("tokens of the chosen answer", first,
                        record.first_tokens);
  }
  const size_t tokens = first + texts->back().ids.size();
  if (tokens != record.tokens) {
    return CountDiffers("tokens", tokens, record.tokens);
  }
  return texts;
}

}  // namespace ballast
