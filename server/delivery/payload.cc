#include "server/delivery/payload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/status_macros.h"
#include "server/config/topology.h"
#include "server/data/jsonl/pair_json.h"
#include "server/delivery/encoder_gate.h"
#include "server/text/sample_fields.h"

namespace ballast {

void ImageCheckCache::Put(v1::Split split, uint64_t position,
                          SampleCheck check) {
  Shard& shard = shards_[split][position % kShards];
  MutexLock lock(&shard.mutex);
  const auto [known, added] =
      shard.checks.insert_or_assign(position, std::move(check));
  if (!added) return;
  shard.positions.push_back(position);
  if (shard.positions.size() <= kMaxCount / kShards) return;
  shard.checks.erase(shard.positions.front());
  shard.positions.pop_front();
}

std::optional<SampleCheck> ImageCheckCache::Get(v1::Split split,
                                                uint64_t position) const {
  const Shard& shard = shards_[split][position % kShards];
  MutexLock lock(&shard.mutex);
  const auto found = shard.checks.find(position);
  if (found == shard.checks.end()) return std::nullopt;
  return found->second;
}

namespace {

// Zeroes payload[from, to).
void Clear(absl::Span<uint8_t> payload, uint64_t from, uint64_t to) {
  if (from < to) std::memset(payload.data() + from, 0, to - from);
}

}  // namespace

absl::Span<uint8_t> ImageData(const ImageRecord& image,
                              absl::Span<uint8_t> payload) {
  return payload.subspan(image.data, ImageBytes(image));
}

void ClearVisionPadding(const SampleRequest& request) {
  uint64_t end = 0;
  for (const ImageRecord& image : request.images) {
    Clear(request.payload, end, image.data);
    end = image.data + ImageBytes(image);
  }
  Clear(request.payload, end, request.payload.size());
}

std::vector<LanguageArrays> OpenLanguagePayload(const SampleRequest& request,
                                                uint32_t position_axes,
                                                FieldCounts fields) {
  std::vector<LanguageArrays> all;
  absl::Span<uint8_t> payload = request.payload;
  const SampleRecord& record = request.record;
  ForEachSequence(record.tokens, record.first_tokens, [&](uint32_t tokens) {
    const LanguagePayload layout =
        LayOutLanguage(tokens, position_axes, fields);
    const uint64_t column = tokens * sizeof(int32_t);
    Clear(payload, layout.ids + column, layout.labels);
    Clear(payload, layout.labels + column, layout.positions);
    Clear(payload, layout.positions + column * position_axes, layout.values);
    const uint64_t values = fields.per_sample * sizeof(uint32_t);
    Clear(payload, layout.values + values, layout.rows);
    Clear(payload, layout.rows + column * fields.per_token, layout.bytes);
    const auto array = [&](uint64_t offset, uint64_t length) {
      return absl::MakeSpan(reinterpret_cast<int32_t*>(payload.data() + offset),
                            length);
    };
    const auto numbers = [&](uint64_t offset, uint64_t length) {
      return absl::MakeSpan(
          reinterpret_cast<uint32_t*>(payload.data() + offset), length);
    };
    all.push_back({array(layout.ids, tokens), array(layout.labels, tokens),
                   array(layout.positions, uint64_t{tokens} * position_axes),
                   numbers(layout.values, fields.per_sample),
                   numbers(layout.rows, uint64_t{tokens} * fields.per_token)});
    payload.remove_prefix(layout.bytes);
  });
  return all;
}

FieldCounts CountFields(absl::Span<const FieldSpec> specs) {
  FieldCounts counts;
  for (const FieldSpec& spec : specs) {
    ++(spec.per == v1::Source::Field::PER_SAMPLE ? counts.per_sample
                                                 : counts.per_token);
  }
  return counts;
}

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

MediaChecks::MediaChecks(const v1::Config* config, const SampleReader* reader)
    : reader_(reader) {
  if (!ChecksImages(*config)) return;
  for (const v1::Module module : Modules(*config)) {
    for (Kind& kind : kinds_) kind.is_checked |= GetMedia(module) == kind.media;
  }
}

void MediaChecks::Put(const SampleRequest& request, Media media,
                      std::optional<DataFault> fault) {
  for (Kind& kind : kinds_) {
    if (kind.media != media) continue;
    kind.known.Put(request.split, request.record.position, {std::move(fault)});
    return;
  }
}

absl::StatusOr<std::optional<DataFault>> MediaChecks::Check(
    const SampleRequest& request, Media built, SampleWork* work) {
  for (Kind& kind : kinds_) {
    const bool has_some = kind.media == Media::kImages
                              ? !request.grids.empty()
                              : !request.clip_rows.empty();
    if (!kind.is_checked || kind.media == built || !has_some) continue;
    BALLAST_ASSIGN_OR_RETURN(std::optional<DataFault> fault,
                             Read(request, &kind, work));
    if (fault.has_value()) return fault;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<DataFault>> MediaChecks::Read(
    const SampleRequest& request, Kind* kind, SampleWork* work) {
  if (const auto known =
          kind->known.Get(request.split, request.record.position)) {
    return known->fault;
  }
  BuildInstruments* const instruments = reader_->instruments();
  std::vector<uint8_t> dropped;
  const auto place = [&](size_t i) {
    if (kind->media != Media::kImages || request.EncodedBytes(i) != 0) {
      return absl::Span<uint8_t>();
    }
    dropped.resize(size_t{3} * request.grids[i].height *
                   request.grids[i].width);
    return absl::MakeSpan(dropped);
  };
  BALLAST_ASSIGN_OR_RETURN(
      const FaultOr<uint32_t> decoded,
      reader_->ReadMedia(request, kind->media, place,
                         instruments ? &instruments->check : nullptr, work));
  std::optional<DataFault> fault;
  if (!decoded.ok()) fault = decoded.fault();
  Put(request, kind->media, fault);
  return fault;
}

}  // namespace ballast
