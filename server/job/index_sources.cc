#include "server/job/index_sources.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/machine.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/schedule/split.h"
#include "server/data/index/bad_records.h"
#include "server/data/index/index_builder.h"
#include "server/data/jsonl/pair_json.h"
#include "server/data/open_source.h"
#include "server/delivery/language_builder.h"
#include "server/job/job_setup.h"
#include "server/job/template_comparison.h"
#include "server/media/image/image.h"
#include "server/media/image/sound_scan.h"
#include "server/media/video/video_reader.h"
#include "server/model/model_images.h"
#include "server/model/model_profile.h"
#include "server/model/model_rows.h"
#include "server/model/model_videos.h"
#include "server/model/profiles.h"
#include "server/recipe/image_recipe.h"
#include "server/sample/data_fault.h"
#include "server/sample/image_header.h"
#include "server/settings/source_fields.h"
#include "server/text/conversation.h"
#include "server/text/media_text.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"
#include "server/text/template/template_renderer.h"
#include "server/text/text_token.h"

namespace ballast {
namespace {

// A place in a version of a file.
using Place = std::array<uint64_t, 7>;

// nullopt: the file was deleted, so another file may get its inode number.
std::optional<Place> GetPlace(const RawMedium& video) {
  struct stat info = {};
  if (fstat(video.fd->get(), &info) != 0 || info.st_nlink == 0) {
    return std::nullopt;
  }
  const auto time = [](const timespec& at) {
    return static_cast<uint64_t>(at.tv_sec) * 1'000'000'000 +
           static_cast<uint64_t>(at.tv_nsec);
  };
  return Place{info.st_dev,
               info.st_ino,
               static_cast<uint64_t>(info.st_size),
               time(info.st_mtim),
               time(info.st_ctim),
               video.offset,
               video.size};
}

class Probe {
 public:
  Probe(StreamProbe read, size_t most) : read_(std::move(read)), most_(most) {}

  absl::StatusOr<StreamProbed> Read(const RawMedium& video) {
    const std::optional<Place> place = GetPlace(video);
    if (place.has_value()) {
      MutexLock lock(&mutex_);
      const auto found = known_.find(*place);
      if (found != known_.end()) return found->second;
    }
    absl::StatusOr<StreamProbed> facts = ReadAnew(video);
    const bool is_final = facts.ok() || absl::IsInvalidArgument(facts.status());
    if (place.has_value() && is_final) {
      MutexLock lock(&mutex_);
      if (known_.emplace(*place, facts).second) order_.push_back(*place);
      if (order_.size() > most_) {
        known_.erase(order_.front());
        order_.pop_front();
      }
    }
    return facts;
  }

 private:
  absl::StatusOr<StreamProbed> ReadAnew(const RawMedium& video) {
    absl::StatusOr<StreamProbed> facts = read_(video);
    if (facts.ok()) return facts;
    // For an index, a file on which the process is silent is bad.
    if (absl::IsDeadlineExceeded(facts.status())) {
      return absl::InvalidArgumentError(facts.status().message());
    }
    // The machine lacks the decoder's libraries: this is no sample's fault.
    if (absl::IsFailedPrecondition(facts.status())) {
      return absl::UnavailableError(facts.status().message());
    }
    return facts.status();
  }

  const StreamProbe read_;
  const size_t most_;
  Mutex mutex_;
  absl::flat_hash_map<Place, absl::StatusOr<StreamProbed>> known_
      ABSL_GUARDED_BY(mutex_);
  // Oldest first.
  std::deque<Place> order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

StreamProbe RememberFacts(StreamProbe read, size_t most) {
  const auto probe = std::make_shared<Probe>(std::move(read), most);
  return [probe](const RawMedium& video) { return probe->Read(video); };
}

StreamProbe MakeVideoProbe(FactsReader read, size_t most) {
  return RememberFacts(
      [read = std::move(read)](
          const RawMedium& video) -> absl::StatusOr<StreamProbed> {
        const absl::StatusOr<VideoFacts> facts =
            read({video.fd->get(), video.offset, video.size});
        if (!facts.ok()) return facts.status();
        const absl::Status work =
            CheckDecodedPixels(MostPacketsToAFrame(facts->table), *facts);
        if (!work.ok()) return work;
        return StreamProbed(GetIndexedVideo(*facts), facts->times);
      },
      most);
}

namespace {

absl::StatusOr<IndexKey> GetKey(v1::Config config) {
  BALLAST_RETURN_IF_ERROR(OpenModelRecipe(&config).status());
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           OpenModelTokenizer(config.mutable_model()));
  return GetIndexKey(config, *tokenizer);
}

absl::StatusOr<SourceCheck> CheckSource(const v1::Source& source,
                                        const LoadedConfig& config,
                                        const IndexKey& key,
                                        const CheckSourcesOptions& options) {
  SourceCheck result;
  result.source = source.name();
  const std::string path = IndexPath(source, config.directory, key);
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<FileSource> opened,
                           OpenSource(source, config.directory, key));
  result.marks = opened->index().mark_counts();
  if (!options.merge) {
    CheckOptions check;
    check.check = CheckScan;
    check.shard = options.shard;
    check.threads = ThreadsOrCores(config.config.serve().threads());
    if (options.progress) {
      check.progress = [&](const IndexProgress& progress) {
        options.progress(source.name(), progress);
      };
    }
    BALLAST_ASSIGN_OR_RETURN(result.report, CheckImages(*opened, check));
  }
  if (options.merge || options.shard.count == 1) {
    BALLAST_ASSIGN_OR_RETURN(result.marks, MergeChecks(path));
    result.is_merged = true;
  }
  return result;
}

}  // namespace

absl::StatusOr<std::vector<SourceCheck>> CheckSources(
    const LoadedConfig& config, const CheckSourcesOptions& options) {
  BALLAST_RETURN_IF_ERROR(ConfigureProcess(config.config));
  BALLAST_ASSIGN_OR_RETURN(const IndexKey key, GetKey(config.config));
  std::vector<SourceCheck> all;
  for (const v1::Source& source : config.config.sources()) {
    if (source.format() == v1::Source::FORMAT_MOCK) continue;
    absl::StatusOr<SourceCheck> result =
        CheckSource(source, config, key, options);
    if (!result.ok()) {
      return Annotate(result.status(), absl::StrCat("source ", source.name()));
    }
    all.push_back(*std::move(result));
  }
  return all;
}

absl::StatusOr<std::vector<SourceMarks>> CountMarks(
    const LoadedConfig& config) {
  BALLAST_RETURN_IF_ERROR(ConfigureProcess(config.config));
  BALLAST_ASSIGN_OR_RETURN(const IndexKey key, GetKey(config.config));
  std::vector<SourceMarks> all;
  for (const v1::Source& source : config.config.sources()) {
    if (source.format() == v1::Source::FORMAT_MOCK) continue;
    BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<FileSource> opened,
                             OpenSource(source, config.directory, key));
    all.push_back(
        {source.name(), opened->index().size(), opened->index().mark_counts()});
  }
  return all;
}

namespace {

// Reads image sizes as the sample builder does. Refuses the images that no
// model can decode: sizes are kept when another model indexes the same files
// (IndexKey::sizes). An image of which this model's plan keeps too many pixels
// is a bad sample when it is served.
ImageSizeReader SizeReader(const v1::Model& model) {
  return [options = GetImageOptions(model)](
             absl::string_view bytes) -> absl::StatusOr<ImageSize> {
    BALLAST_ASSIGN_OR_RETURN(const ImageHeader image,
                             ReadImageSize(bytes, options));
    return ImageSize{image.width, image.height};
  };
}

// Decodes images as the sample builder does, row by row.
ImageDecode GetDecode(const v1::Model& model) {
  return [options =
              GetImageOptions(model)](absl::string_view bytes) -> absl::Status {
    BALLAST_ASSIGN_OR_RETURN(const ImageHeader image,
                             ReadImageSize(bytes, options));
    uint8_t pixel[3];
    return ImageDecoder(options).DecodeResized(bytes, image, 1, 1, pixel);
  };
}

// Judges images as JudgeHeader does; the host also decodes images that it
// turns.
ImageJudge GetJudge(const v1::Model& model) {
  if (!model.exif_orientation()) return JudgeHeader;
  return [](absl::string_view bytes) -> absl::StatusOr<EngineRefusal> {
    BALLAST_ASSIGN_OR_RETURN(const EngineRefusal refusal, JudgeHeader(bytes));
    if (refusal != EngineRefusal::kNone) return refusal;
    BALLAST_ASSIGN_OR_RETURN(const ImageHeader header, ReadImageHeader(bytes));
    BALLAST_ASSIGN_OR_RETURN(const Orientation orientation,
                             ReadOrientation(bytes, header));
    return orientation == kUpright ? EngineRefusal::kNone
                                   : EngineRefusal::kTurned;
  };
}

// The images of a sample of `source`, for every epoch.
SampleImages ForEveryEpoch(const v1::Source& source,
                           absl::Span<const ImageSize> sides) {
  SampleImages images(sides);
  images.source = source.name();
  images.split = SplitName(source.split());
  return images;
}

// A measured text, and the placeholders of its images.
struct MeasuredSample {
  MeasuredText text;
  uint64_t placeholders = 0;
};

absl::StatusOr<MeasuredSample> MeasureBoth(const RawSample& sample,
                                           const SampleImages& images,
                                           const TextOptions& text,
                                           absl::Span<const FieldSpec> fields) {
  const TextForm form = GetForm(sample.text_format);
  MeasuredSample measured;
  if (sample.known_tokens > 0) {
    measured.text = MeasureTokenIds(sample.known_tokens, text);
    return measured;
  }
  BALLAST_ASSIGN_OR_RETURN(measured.placeholders,
                           text.text->images().Placeholders(images));
  const ModelImages& model = text.text->images();
  BALLAST_ASSIGN_OR_RETURN(
      const MediaText media,
      PlanMediaText(model.video(), model.rows(), sample.facts));
  measured.placeholders += media.placeholders;
  const bool is_built_in =
      !IsCheckpointTemplate(text.text->model().chat_template());
  if (sample.text_format == RawSample::TextFormat::kPair) {
    const PairTexts pair = GetPairTexts(sample.text);
    measured.placeholders *= 2;
    BALLAST_ASSIGN_OR_RETURN(
        measured.text, MeasurePair(pair.chosen, pair.rejected, images, text,
                                   GetTextFields(sample, fields)));
    if (!is_built_in) return measured;
    BALLAST_RETURN_IF_ERROR(CheckAllIsRead(pair.chosen));
    BALLAST_RETURN_IF_ERROR(CheckAllIsRead(pair.rejected));
    return measured;
  }
  BALLAST_ASSIGN_OR_RETURN(
      measured.text, MeasureText(sample.text, form, images, text, media.texts,
                                 GetTextFields(sample, fields)));
  if (form == TextForm::kConversation && is_built_in) {
    BALLAST_RETURN_IF_ERROR(CheckAllIsRead(sample.text));
  }
  return measured;
}

FindMediaOrder GetOrder(const TextOptions& text) {
  return
      [model = text.text](const RawSample& sample, const MediaCounts& media) {
        // Measuring the text reports these faults.
        return model->FindOrder(sample.text, GetForm(sample.text_format), media)
            .value_or(MediaOrder());
      };
}

// Measures a sample's text under `text`.
absl::StatusOr<TextLengths> Measure(const RawSample& sample,
                                    const SampleImages& images,
                                    const TextOptions& text,
                                    absl::Span<const FieldSpec> fields) {
  BALLAST_ASSIGN_OR_RETURN(const MeasuredSample both,
                           MeasureBoth(sample, images, text, fields));
  const MeasuredText& measured = both.text;
  if (measured.too_long) {
    if (text.on_too_long == v1::Batch::ON_TOO_LONG_SKIP) {
      return TextLengths{.skip = true};
    }
    const uint64_t tokens = measured.text_tokens + both.placeholders;
    return OfKind(absl::OutOfRangeError(absl::StrCat(
                      tokens, " tokens; batch.max_tokens is ", text.max_tokens,
                      " (see batch.on_too_long)")),
                  kTooLong);
  }
  return TextLengths{
      measured.text_tokens, measured.label_tokens,
      /*skip=*/false,       measured.limited,      measured.first_text_tokens,
      measured.unlearnt};
}

// Returns whether lengths measured under other bounds also hold under `text`.
bool Hold(const TextLengths& lengths, const SampleImages& images,
          const TextOptions& text) {
  return TextFits(lengths.text_tokens, images, text,
                  lengths.first_text_tokens != 0);
}

// Runs VerifyIndex and reports its progress like a build that reads `samples`
// bytes.
absl::Status Verify(const v1::Source& source, absl::string_view directory,
                    const IndexKey& key, uint64_t samples,
                    const IndexSourcesOptions& options) {
  return VerifyIndex(source, directory, key, [&](uint64_t done) {
    if (!options.progress) return;
    IndexProgress progress;
    progress.bytes_done = done;
    progress.bytes_total = samples;
    progress.samples = done;
    options.progress(source.name(), progress);
  });
}

// Enters what the index leaves out.
void SetLeftOut(const v1::Source& source, const std::string& path,
                SourceIndexing* result) {
  result->left_out = SummariseBad(source.name(), result->report.samples,
                                  result->report.bad, result->report.known_bad);
  result->bad_list = BadRecordsPath(path);
  result->left_out_status =
      CheckLeftOut(source, result->left_out, result->bad_list);
}

// The bad records of an index that is up to date.
void SetKnownBad(const v1::Source& source, const IndexFile& index,
                 IndexReport* report) {
  if (auto bad = ReadBadRecords(index); bad.ok()) {
    report->bad = *std::move(bad);
  } else {
    report->known_bad = GetLeftOut(source, index).bad();
  }
}

// The number of samples that have too many tokens.
uint64_t CountTooLong(const IndexReport& report) {
  return std::count_if(
      report.bad.begin(), report.bad.end(),
      [](const BadSample& bad) { return bad.kind == kTooLong; });
}

// Unpacks the compressed lines of `source`, or of the shard.
absl::Status UnpackSource(const v1::Source& source, absl::string_view directory,
                          uint32_t threads, const IndexSourcesOptions& options,
                          SourceIndexing* result) {
  if (options.merge) return absl::OkStatus();
  auto unpacked =
      UnpackLines(source, directory, options.shard.value_or(Shard()), threads,
                  [&](const IndexProgress& progress) {
                    if (!options.progress) return;
                    options.progress(source.name() + ": unpacking", progress);
                  });
  if (!unpacked.ok()) {
    return Annotate(unpacked.status(), absl::StrCat("source ", source.name()));
  }
  result->unpacked = *std::move(unpacked);
  return absl::OkStatus();
}

// Builds the index of `source`, or scans a shard of it, or merges its shards.
absl::Status Build(const v1::Source& source, absl::string_view directory,
                   const IndexOptions& index_options,
                   const IndexSourcesOptions& options, SourceIndexing* result) {
  if (options.shard.has_value()) {
    BALLAST_ASSIGN_OR_RETURN(
        result->shard,
        ScanShard(source, directory, index_options, *options.shard));
    return absl::OkStatus();
  }
  BALLAST_ASSIGN_OR_RETURN(result->report,
                           options.merge
                               ? MergeScans(source, directory, index_options)
                               : BuildIndex(source, directory, index_options));
  result->too_long = CountTooLong(result->report);
  // The index is of the files as they are now.
  BALLAST_ASSIGN_OR_RETURN(result->removed_lines,
                           RemoveOldLines(source, directory));
  return absl::OkStatus();
}

// Indexes the sources of a job, one after the other. Thread-hostile.
class SourceIndexer {
 public:
  // All must outlive it.
  SourceIndexer(const LoadedConfig& config, const IndexSourcesOptions& options)
      : config_(config.config),
        directory_(config.directory),
        options_(options),
        threads_(ThreadsOrCores(config_.serve().threads())),
        videos_(static_cast<int>(threads_)) {}

  // Opens what reads the texts and the media of the model.
  absl::Status Open();
  absl::StatusOr<std::vector<SourceIndexing>> Run();

 private:
  absl::StatusOr<SourceIndexing> IndexOne(const v1::Source& source);
  // Whether the index is as `options` want it; else sets `stale` if there is
  // one.
  absl::StatusOr<bool> TakeFresh(const v1::Source& source,
                                 SourceIndexing* result);
  // Its functions refer to `fields`.
  IndexOptions GetOptions(const v1::Source& source,
                          const std::vector<FieldSpec>* fields);
  bool HasHashes(const v1::Source& source) const;

  v1::Config config_;
  const std::string directory_;
  const IndexSourcesOptions& options_;
  const uint32_t threads_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<const ModelText> model_text_;
  // Made once there is a source to read.
  std::unique_ptr<TemplateComparison> comparison_;
  bool compares_ = true;
  TextOptions text_;
  IndexKey key_;
  std::vector<SharedFile> shared_;
  VideoReader videos_;
  std::unique_ptr<RowsReader> rows_;
  PerMedium<StreamProbe> read_;
  StreamProbe read_audio_in_video_;
};

absl::Status SourceIndexer::Open() {
  BALLAST_ASSIGN_OR_RETURN(std::shared_ptr<const ImageRecipe> recipe,
                           OpenModelRecipe(&config_));
  std::unique_ptr<const TemplateRenderer> renderer;
  BALLAST_ASSIGN_OR_RETURN(
      tokenizer_, OpenModelTokenizer(config_.mutable_model(), &renderer));
  BALLAST_ASSIGN_OR_RETURN(
      model_text_, ModelText::Create(config_.model(), tokenizer_.get(),
                                     std::move(renderer), std::move(recipe)));
  text_ = {model_text_.get(), config_.batch().max_tokens(),
           config_.batch().on_too_long()};
  key_ = GetIndexKey(config_, *tokenizer_);
  BALLAST_ASSIGN_OR_RETURN(shared_, FindSharedFiles(config_, directory_));
  if (GetVideoModel(config_.model()).has_value()) {
    read_[MediumKind::kVideo] = MakeVideoProbe(
        [this](const VideoBytes& video) { return videos_.ReadFacts(video); });
  }
  const RowsRule* const rows = GetRowsRule(config_.model());
  if (rows == nullptr) return absl::OkStatus();
  BALLAST_RETURN_IF_ERROR(Annotate(rows->Check(), "model.profile"));
  rows_ = rows->MakeReader(static_cast<int>(threads_), /*counters=*/nullptr);
  const auto facts_of = [this](bool in_video) {
    return RememberFacts([this, in_video](const RawMedium& file) {
      return rows_->ReadFacts(file, in_video);
    });
  };
  read_[rows->kind()] = facts_of(/*in_video=*/false);
  if (config_.model().video().use_audio_in_video()) {
    read_audio_in_video_ = facts_of(/*in_video=*/true);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SourceIndexing>> SourceIndexer::Run() {
  std::vector<SourceIndexing> all;
  for (const v1::Source& source : config_.sources()) {
    BALLAST_ASSIGN_OR_RETURN(SourceIndexing result, IndexOne(source));
    all.push_back(std::move(result));
  }
  return all;
}

absl::StatusOr<SourceIndexing> SourceIndexer::IndexOne(
    const v1::Source& source) {
  SourceIndexing result;
  result.source = source.name();
  for (const SharedFile& file : shared_) {
    if (file.source == source.name()) result.shared.push_back(file);
  }
  if (source.format() == v1::Source::FORMAT_MOCK) {
    BALLAST_ASSIGN_OR_RETURN(const auto drawn,
                             OpenAnySource(source, config_, directory_, key_));
    result.is_drawn = true;
    result.report.samples = drawn->index().size();
    return result;
  }
  BALLAST_RETURN_IF_ERROR(
      UnpackSource(source, directory_, threads_, options_, &result));
  BALLAST_ASSIGN_OR_RETURN(const bool is_fresh, TakeFresh(source, &result));
  if (is_fresh) return result;
  if (std::exchange(compares_, false)) {
    comparison_ =
        TemplateComparison::Create(model_text_.get(), tokenizer_.get());
  }
  const std::vector<FieldSpec> fields = GetFieldSpecs(source);
  const absl::Status built =
      Build(source, directory_, GetOptions(source, &fields), options_, &result);
  if (!built.ok()) {
    return Annotate(built, absl::StrCat("source ", source.name()));
  }
  if (!result.shard.has_value()) {
    SetLeftOut(source, IndexPath(source, directory_, key_), &result);
  }
  if (comparison_ != nullptr) {
    result.template_difference = comparison_->TakeDifference();
  }
  return result;
}

bool SourceIndexer::HasHashes(const v1::Source& source) const {
  const auto old =
      IndexFile::OpenToReuse(OldIndexPath(source, directory_, key_));
  return old.ok() && (*old)->is_hashed();
}

absl::StatusOr<bool> SourceIndexer::TakeFresh(const v1::Source& source,
                                              SourceIndexing* result) {
  const auto opened = OpenSource(source, directory_, key_);
  const std::string path = IndexPath(source, directory_, key_);
  absl::Status found;  // status of the existing index
  if (!opened.ok()) {
    found = CheckIndexFresh(source, directory_, key_);
  } else if (options_.verify && !options_.rebuild) {
    found =
        Verify(source, directory_, key_, (*opened)->index().size(), options_);
  }
  if (opened.ok() && found.ok() && options_.hash && !HasHashes(source)) {
    found = absl::FailedPreconditionError(
        absl::StrCat(path, ": it has no hashes of its media"));
  }
  if (opened.ok() && found.ok() && !options_.rebuild) {
    result->was_fresh = true;
    result->was_verified = options_.verify;
    result->report.samples = (*opened)->index().size();
    result->report.marks = (*opened)->index().mark_counts();
    SetKnownBad(source, (*opened)->index_file(), &result->report);
    SetLeftOut(source, path, result);
    return true;
  }
  if (std::error_code ignored; std::filesystem::exists(path, ignored)) {
    result->stale = std::string(found.message());
  }
  return false;
}

IndexOptions SourceIndexer::GetOptions(const v1::Source& source,
                                       const std::vector<FieldSpec>* fields) {
  IndexOptions options;
  options.measure = [this, &source, fields](
                        const RawSample& sample,
                        absl::Span<const ImageSize> images) {
    auto lengths =
        Measure(sample, ForEveryEpoch(source, images), text_, *fields);
    if (comparison_ != nullptr && lengths.ok()) {
      comparison_->Look(sample, images.size());
    }
    return lengths;
  };
  // An index without these samples would count as up to date and be served.
  options.accept = [](const IndexReport& report) {
    return CountTooLong(report) == 0;
  };
  options.pairs = source.pairs();
  options.read_image_size = SizeReader(config_.model());
  options.judge_image = GetJudge(config_.model());
  options.decode_image = GetDecode(config_.model());
  options.read = read_;
  options.read_audio_in_video = read_audio_in_video_;
  options.find_order = GetOrder(text_);
  const VideoModel* const video = model_text_->images().video();
  options.mixes_images_and_videos = video != nullptr && video->frames_are_crops;
  const v1::ModelProfile* const profile = GetProfile(config_.model());
  if (profile != nullptr && !TakesImages(*profile)) {
    options.no_images =
        absl::StrCat("an image, and model.profile ", config_.model().profile(),
                     " takes audio alone; wanted a model that takes images");
  }
  options.key = key_;
  options.lengths_hold = [this, &source](const TextLengths& lengths,
                                         absl::Span<const ImageSize> images) {
    return Hold(lengths, ForEveryEpoch(source, images), text_);
  };
  options.reuse = !options_.rebuild;
  options.hash = options_.hash || (!options_.rebuild && HasHashes(source));
  options.threads = threads_;
  if (options_.progress) {
    options.progress = [this, &source](const IndexProgress& progress) {
      options_.progress(source.name(), progress);
    };
  }
  return options;
}

}  // namespace

absl::StatusOr<std::vector<SourceIndexing>> IndexSources(
    const LoadedConfig& config, const IndexSourcesOptions& options) {
  BALLAST_RETURN_IF_ERROR(ConfigureProcess(config.config));
  SourceIndexer indexer(config, options);
  BALLAST_RETURN_IF_ERROR(indexer.Open());
  return indexer.Run();
}

}  // namespace ballast
