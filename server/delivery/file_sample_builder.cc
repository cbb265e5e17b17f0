#include "server/delivery/file_sample_builder.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/machine.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "server/delivery/payload.h"
#include "server/media/image/image.h"
#include "server/text/text_token.h"

namespace ballast {

void FillVisionPlaceholder(const SampleRequest& request) {
  for (const ImageRecord& image : request.images) {
    const absl::Span<uint8_t> data = ImageData(image, request.payload);
    std::memset(data.data(), image.encoded_bytes == 0 ? kGreyPixel : 0,
                data.size());
  }
  ClearVisionPadding(request);
}

namespace {

// Fills the arrays of one sequence of a placeholder.
void FillSequence(const LanguageArrays& arrays, const ModelText& text,
                  const SampleImages& images, const MediaText& streams,
                  absl::Span<const FieldSpec> fields) {
  const v1::TokenIds& ids = text.model().token_ids();
  auto value = arrays.values.begin();
  auto row = arrays.rows.begin();
  for (const FieldSpec& spec : fields) {
    if (spec.per == v1::Source::Field::PER_SAMPLE) {
      *value++ = MissingBits(spec);
    } else {
      row = std::fill_n(row, arrays.ids.size(), MissingBits(spec));
    }
  }
  std::fill(arrays.ids.begin(), arrays.ids.end(), ids.pad());
  std::fill(arrays.labels.begin(), arrays.labels.end(), kUnsupervised);
  auto at = arrays.ids.begin();
  bool fits = true;
  const auto fill = [&](uint64_t tokens, int32_t id) {
    fits = fits && tokens <= static_cast<uint64_t>(arrays.ids.end() - at);
    if (fits) at = std::fill_n(at, tokens, id);
  };
  const auto add = [&](uint64_t tokens, int32_t id) {
    const bool has_ends = ids.vision_start() >= 0 && ids.vision_end() >= 0;
    const auto room = static_cast<uint64_t>(arrays.ids.end() - at);
    fits = fits && tokens + (has_ends ? 2 : 0) <= room;
    if (!fits) return;
    if (has_ends) *at++ = ids.vision_start();
    at = std::fill_n(at, tokens, id);
    if (has_ends) *at++ = ids.vision_end();
  };
  for (size_t i = 0; i < images.size(); ++i) {
    const absl::StatusOr<ImagePlan> plan = text.images().Plan(images, i);
    fits = fits && plan.ok();
    if (fits) add(plan->placeholders, ids.image());
  }
  for (const StreamText& stream : streams.texts) {
    if (TravelsAsRows(stream.kind)) {
      fill(stream.run_tokens, ids.audio());
      continue;
    }
    if (!stream.with_audio.empty()) {
      fill(2, ids.pad());  // for its marks
      for (const AudioInVideoRun& run : stream.with_audio) {
        fill(run.tokens, run.is_audio ? ids.audio() : text.video_placeholder());
      }
      fill(2, ids.pad());
      continue;
    }
    for (uint32_t run = 0; run < stream.runs; ++run) {
      add(stream.run_tokens, text.video_placeholder());
    }
  }
  // Place fails if the model pads with its image id.
  if (!text.Place(arrays.ids, images, streams.grids, arrays.positions).ok()) {
    CountPositions(text.model(), arrays.positions);
  }
}

}  // namespace

void FillLanguagePlaceholder(const SampleRequest& request,
                             const ModelText& text, const SampleImages& images,
                             const MediaText& streams,
                             absl::Span<const FieldSpec> fields) {
  for (const LanguageArrays& arrays : OpenLanguagePayload(
           request, text.model().position_axes(), CountFields(fields))) {
    FillSequence(arrays, text, images, streams, fields);
  }
}

namespace {

// Number of earlier samples that the error names when there are too many.
constexpr size_t kNamed = 3;

}  // namespace

absl::Status BadSamples::Add(uint32_t source, uint64_t ordinal,
                             absl::string_view name,
                             const SampleLocation& location,
                             const DataFault& fault) {
  {
    MutexLock lock(&mutex_);
    const Key key = {source, ordinal};
    const auto known = samples_.find(key);
    if (known != samples_.end()) {
      ++known->second.count;
      return absl::OkStatus();
    }
    if (samples_.size() >= most_) {
      std::string text = absl::StrCat(
          "sample ", name, ": ", fault.reason(), " (and ", samples_.size(),
          " samples before it were bad, the most that serve.max_bad_samples "
          "allows");
      for (const Key& last : last_) {
        const Sample& listed = samples_[last];
        absl::StrAppend(&text, "; ", listed.name, ": ", listed.reason);
      }
      return absl::DataLossError(absl::StrCat(text, ")"));
    }
    samples_[key] = {std::string(name), location.file, location.offset,
                     fault.reason(), 1};
    last_.push_back(key);
    if (last_.size() > kNamed) last_.pop_front();
  }
  LogWarning("bad sample ", name, " (", location.file, " at byte ",
             location.offset, "): ", fault.reason());
  return absl::OkStatus();
}

std::vector<BadSamples::Sample> BadSamples::List() const {
  MutexLock lock(&mutex_);
  std::vector<Sample> samples;
  for (const auto& [key, sample] : samples_) samples.push_back(sample);
  return samples;
}

absl::StatusOr<std::optional<DataFault>> EncoderBuilder::Build(
    const SampleRequest& request, SampleWork* work) {
  const Media media = GetMedia(request.module);
  std::optional<DataFault> fault;
  // A sample without media for the module has nothing to read.
  if (!request.images.empty()) {
    BALLAST_ASSIGN_OR_RETURN(fault, Read(request, media, work));
  }
  checks_->Put(request, media, fault);
  if (fault.has_value()) return fault;
  BALLAST_ASSIGN_OR_RETURN(fault, checks_->Check(request, media, work));
  if (!fault.has_value()) ClearVisionPadding(request);
  return fault;
}

absl::StatusOr<std::optional<DataFault>> EncoderBuilder::Read(
    const SampleRequest& request, Media media, SampleWork* work) {
  BuildInstruments* const instruments = reader_->instruments();
  DecodedCounters* const decoded = instruments == nullptr ? nullptr
                                   : media == Media::kRows
                                       ? &instruments->audio
                                       : &instruments->vision;
  BALLAST_ASSIGN_OR_RETURN(const FaultOr<uint32_t> warnings,
                           reader_->ReadMedia(
                               request, media,
                               [&request](size_t i) {
                                 return ImageData(request.images[i],
                                                  request.payload);
                               },
                               decoded, work));
  if (!warnings.ok()) return warnings.fault();
  images_with_warnings_.fetch_add(*warnings, std::memory_order_relaxed);
  if (instruments != nullptr && media == Media::kImages) {
    instruments->images_encoded.Add(std::count_if(
        request.images.begin(), request.images.end(),
        [](const ImageRecord& image) { return image.encoded_bytes != 0; }));
  }
  return std::nullopt;
}

FileSampleBuilder::FileSampleBuilder(const v1::Config& config, Job job)
    : FileSampleBuilder(
          config, std::move(job),
          std::make_shared<DecodeBudget>(DecodeBudgetBytes(
              config.serve().decode_memory(), MachineMemory())),
          std::make_shared<BadSamples>(config.serve().max_bad_samples())) {}

FileSampleBuilder::FileSampleBuilder(const v1::Config& config, Job job,
                                     const FileSampleBuilder& other)
    : FileSampleBuilder(config, Beside(std::move(job), other),
                        other.decode_budget_, other.bad_samples_) {}

FileSampleBuilder::Job FileSampleBuilder::Beside(
    Job job, const FileSampleBuilder& other) {
  job.active = other.active_;
  job.instruments = other.instruments_;
  return job;
}

FileSampleBuilder::FileSampleBuilder(
    const v1::Config& config, Job job,
    std::shared_ptr<DecodeBudget> decode_budget,
    std::shared_ptr<BadSamples> bad_samples)
    : config_(config),
      text_(job.text),
      decode_budget_(std::move(decode_budget)),
      videos_(config_.model(), GetImageOptions(config_.model()).resampling,
              static_cast<int>(ThreadsOrCores(config_.serve().threads())),
              decode_budget_.get(),
              job.instruments ? &job.instruments->video_decoders : nullptr),
      rows_(
          job.text->images().rows() == nullptr
              ? nullptr
              : job.text->images().rows()->MakeReader(
                    static_cast<int>(ThreadsOrCores(config_.serve().threads())),
                    job.instruments ? &job.instruments->audio_decoders
                                    : nullptr)),
      reader_(&config_, std::move(job.sources),
              GetImageOptions(config_.model()), &job.text->images(),
              job.scheduler, &videos_, rows_.get(), decode_budget_.get(),
              job.instruments),
      checks_(&config_, &reader_),
      encoders_(&reader_, &checks_),
      language_(&config_, job.text, &reader_, &checks_),
      active_(job.active),
      instruments_(job.instruments),
      bad_samples_(std::move(bad_samples)) {}

std::string FileSampleBuilder::GetName(uint32_t source,
                                       uint64_t ordinal) const {
  return absl::StrCat(config_.sources(source).name(), ":", ordinal);
}

absl::StatusOr<SampleOutcome> FileSampleBuilder::Build(
    const SampleRequest& request) const {
  ActiveSample active;
  active.module = request.module;
  active.position = request.record.position;
  active.source = request.record.source;
  active.ordinal = request.record.ordinal;
  active.split = request.split;
  active.sample_step = request.step;
  active.stage = "beginning";
  ActiveSamples::Scope scope(active_, active);
  SampleWork work{&scope, ""};
  const absl::StatusOr<std::optional<DataFault>> built =
      BuildPayload(request, &work);
  // If the index file has been written to, its entry may belong to another
  // sample.
  BALLAST_RETURN_IF_ERROR(
      reader_.source(request.record.source).index().CheckUnchanged());
  const FailingFiles::Part part = {active.source, active.ordinal,
                                   active.module};
  if (built.ok() && instruments_ != nullptr) {
    instruments_->failing_files.Succeeded(part);
  }
  if (built.ok() && !built->has_value()) return SampleOutcome::kBuilt;
  std::string name = GetName(active.source, active.ordinal);
  if (!work.name.empty()) absl::StrAppend(&name, " (", work.name, ")");
  if (built.ok()) return Replace(request, name, **built);
  if (instruments_ != nullptr) {
    instruments_->failing_files.Failed(
        part, Locate(active.source, active.ordinal).file,
        absl::StrCat("sample ", name, ": ", built.status().message()));
  }
  return absl::UnavailableError(absl::StrCat(
      "sample ", name, ": ", built.status().message(),
      "; no placeholder replaces it: another server, or this one later, may "
      "read it"));
}

absl::StatusOr<std::optional<DataFault>> FileSampleBuilder::BuildPayload(
    const SampleRequest& request, SampleWork* work) const {
  switch (GetMedia(request.module)) {
    case Media::kImages:
    case Media::kRows:
      return encoders_.Build(request, work);
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
      bad_samples_->Add(source, ordinal, name, Locate(source, ordinal), fault));
  if (reader_.instruments() != nullptr) {
    reader_.instruments()->placeholders.Add();
  }
  if (!IsLanguage(request.module)) {
    FillVisionPlaceholder(request);
  } else {
    BALLAST_ASSIGN_OR_RETURN(const MediaText streams,
                             reader_.GetMediaText(request));
    BALLAST_ASSIGN_OR_RETURN(const SampleImages images,
                             reader_.GetImages(request));
    FillLanguagePlaceholder(request, *text_, images, streams,
                            language_.GetFields(source));
  }
  return SampleOutcome::kPlaceholder;
}

}  // namespace ballast
