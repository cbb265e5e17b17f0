#include "server/delivery/file_sample_builder.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cores.h"
#include "common/machine_memory.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "server/delivery/placeholder.h"
#include "server/image/image.h"

namespace ballast {

FileSampleBuilder::FileSampleBuilder(const v1::Config& config,
                                     std::vector<const SampleSource*> sources,
                                     const ModelText* text,
                                     ActiveSamples* active,
                                     BuildInstruments* instruments)
    : config_(config),
      text_(text),
      decode_budget_(
          DecodeBudgetBytes(config_.serve().decode_memory(), MachineMemory())),
      videos_(config_.model(), ImageOptionsOf(config_.model()).resampling,
              static_cast<int>(ThreadsOrCores(config_.serve().threads())),
              &decode_budget_,
              instruments ? &instruments->video_decoders : nullptr),
      reader_(std::move(sources), ImageOptionsOf(config_.model()),
              &text->planner(), &videos_, &decode_budget_, instruments),
      vision_(&reader_, &image_checks_),
      language_(&config_, text, &reader_, &image_checks_),
      active_(active),
      bad_samples_(config_.serve().max_bad_samples()) {}

std::string FileSampleBuilder::NameOf(uint32_t source, uint64_t ordinal) const {
  return absl::StrCat(config_.sources(source).name(), ":", ordinal);
}

absl::StatusOr<SampleOutcome> FileSampleBuilder::Build(
    const SampleRequest& request) const {
  ActiveSample active;
  active.module = request.module;
  active.position = request.record.position;
  active.source = request.record.source;
  active.ordinal = request.record.ordinal;
  active.stage = "beginning";
  ActiveSamples::Scope scope(active_, active);
  SampleWork work{&scope, ""};
  const absl::StatusOr<std::optional<DataFault>> built =
      BuildPayload(request, &work);
  // What the index said of the sample, if anything has written to it, may be of
  // another one.
  BALLAST_RETURN_IF_ERROR(
      reader_.source(request.record.source).index().CheckUnchanged());
  if (built.ok() && !built->has_value()) return SampleOutcome::kBuilt;
  std::string name = NameOf(active.source, active.ordinal);
  if (!work.name.empty()) absl::StrAppend(&name, " (", work.name, ")");
  if (built.ok()) return Replace(request, name, **built);
  return absl::UnavailableError(absl::StrCat(
      "sample ", name, ": ", built.status().message(),
      "; no placeholder replaces it: another server, or this one later, may "
      "read it"));
}

absl::StatusOr<std::optional<DataFault>> FileSampleBuilder::BuildPayload(
    const SampleRequest& request, SampleWork* work) const {
  switch (GetMedia(request.module)) {
    case Media::kImages:
      return vision_.Build(request, work);
    case Media::kText:
      return language_.Build(request, work);
    case Media::kNone:
      break;
  }
  return absl::InternalError(
      absl::StrCat("no builder for module ", request.module));
}

absl::StatusOr<SampleOutcome> FileSampleBuilder::Replace(
    const SampleRequest& request, const std::string& name,
    const DataFault& fault) const {
  if (config_.serve().on_bad_sample() == v1::Serve::ON_BAD_SAMPLE_ERROR) {
    return absl::DataLossError(
        absl::StrCat("sample ", name, ": ", fault.reason()));
  }
  const uint32_t source = request.record.source;
  const uint64_t ordinal = request.record.ordinal;
  BALLAST_RETURN_IF_ERROR(
      bad_samples_.Add(source, ordinal, name, Locate(source, ordinal), fault));
  if (reader_.instruments() != nullptr) {
    reader_.instruments()->placeholders.Add();
  }
  if (GetMedia(request.module) == Media::kImages) {
    FillVisionPlaceholder(request);
  } else {
    BALLAST_ASSIGN_OR_RETURN(const SampleVideoText videos,
                             reader_.VideosOf(request));
    BALLAST_ASSIGN_OR_RETURN(const std::vector<TileShape> sides,
                             reader_.ImageSides(request));
    FillLanguagePlaceholder(request, *text_, sides, videos.texts, videos.grids);
  }
  return SampleOutcome::kPlaceholder;
}

}  // namespace ballast
