#include "server/job/index_sources.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cores.h"
#include "common/status_macros.h"
#include "server/config/image_family_config.h"
#include "server/config/model_profile.h"
#include "server/corpus/index/index_builder.h"
#include "server/corpus/open_source.h"
#include "server/corpus/source_files.h"
#include "server/delivery/text_form.h"
#include "server/image/exif.h"
#include "server/image/image.h"
#include "server/image/image_header.h"
#include "server/job/config_index_key.h"
#include "server/storage/storage.h"
#include "server/text/model_tokenizer.h"
#include "server/text/text_measure.h"
#include "server/text/tokenizer.h"

namespace ballast {
namespace {

// Reads image sizes as the sample builder does.
ImageSizeReader SizeReader(const v1::Model& model) {
  return [options = ImageOptionsOf(model)](
             absl::string_view bytes) -> absl::StatusOr<ImageSize> {
    BALLAST_ASSIGN_OR_RETURN(const ImageHeader image,
                             ReadImageSize(bytes, options));
    return ImageSize{image.width, image.height};
  };
}

// Judges images as JudgeHeader does; the host also decodes those that it turns.
ImageJudge JudgeOf(const v1::Model& model) {
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

absl::StatusOr<std::vector<ImageGrid>> Grids(absl::Span<const ImageSize> images,
                                             const v1::Model& model) {
  std::vector<ImageGrid> grids;
  grids.reserve(images.size());
  for (const ImageSize& image : images) {
    BALLAST_ASSIGN_OR_RETURN(const ImageGrid grid,
                             ResizedGrid(image.height, image.width, model));
    grids.push_back(grid);
  }
  return grids;
}

// Measures a sample's text under `text`. `too_long` counts the samples whose
// length is an error.
absl::StatusOr<TextLengths> Measure(const RawSample& sample,
                                    absl::Span<const ImageSize> images,
                                    const TextOptions& text,
                                    std::atomic<uint64_t>* too_long) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<ImageGrid> grids,
                           Grids(images, *text.model));
  BALLAST_ASSIGN_OR_RETURN(
      const MeasuredText measured,
      MeasureText(sample.text, FormOf(sample.text_format), grids, text));
  if (measured.too_long) {
    if (text.on_too_long == v1::Batch::ON_TOO_LONG_SKIP) {
      return TextLengths{.skip = true};
    }
    uint64_t tokens = measured.text_tokens;
    for (const ImageGrid& grid : grids)
      tokens += ImageTokens(grid, *text.model);
    ++*too_long;
    return absl::OutOfRangeError(
        absl::StrCat(tokens, " tokens; batch.max_tokens is ", text.max_tokens,
                     " (see batch.on_too_long)"));
  }
  return TextLengths{measured.text_tokens, measured.label_tokens,
                     /*skip=*/false, measured.limited};
}

// Returns whether lengths measured under other bounds also hold under `text`.
bool Hold(const TextLengths& lengths, absl::Span<const ImageSize> images,
          const TextOptions& text) {
  const auto grids = Grids(images, *text.model);
  return grids.ok() && TextFits(lengths.text_tokens, *grids, text);
}

// Runs VerifyIndex and reports its progress like that of a build of `samples`
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

}  // namespace

absl::StatusOr<std::vector<SourceIndexing>> IndexSources(
    const LoadedConfig& config, const IndexSourcesOptions& options) {
  BALLAST_RETURN_IF_ERROR(
      Storage::OfProcess().Configure(config.config.storage()));
  BALLAST_RETURN_IF_ERROR(RefuseImageFamily(config.config.model()));
  v1::Config c = config.config;
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           OpenModelTokenizer(c.mutable_model()));
  const TextOptions text = {tokenizer.get(), &c.model(), c.batch().max_tokens(),
                            c.batch().on_too_long()};
  const IndexKey key = IndexKeyOf(c, *tokenizer);
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SharedFile> shared,
                           FindSharedFiles(c, config.directory));
  std::vector<SourceIndexing> all;
  for (const v1::Source& source : c.sources()) {
    SourceIndexing result;
    result.source = source.name();
    for (const SharedFile& file : shared) {
      if (file.source == source.name()) result.shared.push_back(file);
    }
    if (source.format() == v1::Source::FORMAT_MOCK) {
      BALLAST_ASSIGN_OR_RETURN(const auto drawn,
                               OpenAnySource(source, c, config.directory, key));
      result.is_drawn = true;
      result.report.samples = drawn->index().size();
      all.push_back(std::move(result));
      continue;
    }
    const auto opened = OpenSource(source, config.directory, key);
    absl::Status found;  // state of the existing index
    if (!opened.ok()) {
      found = CheckIndexFresh(source, config.directory, key);
    } else if (options.verify && !options.rebuild) {
      found = Verify(source, config.directory, key, (*opened)->index().size(),
                     options);
    }
    if (opened.ok() && found.ok() && !options.rebuild) {
      result.was_fresh = true;
      result.was_verified = options.verify;
      result.report.samples = (*opened)->index().size();
      result.report.marks = (*opened)->index().mark_counts();
      all.push_back(std::move(result));
      continue;
    }
    const std::string path = IndexPath(source, config.directory);
    if (std::error_code ignored; std::filesystem::exists(path, ignored)) {
      result.stale = std::string(found.message());
    }
    std::atomic<uint64_t> too_long = 0;
    IndexOptions index_options;
    index_options.measure = [&](const RawSample& sample,
                                absl::Span<const ImageSize> images) {
      return Measure(sample, images, text, &too_long);
    };
    // An index without these samples would count as up to date and be served.
    index_options.accept = [&](const IndexReport&) { return too_long == 0; };
    index_options.read_image_size = SizeReader(c.model());
    index_options.judge_image = JudgeOf(c.model());
    index_options.key = key;
    index_options.lengths_hold = [&](const TextLengths& lengths,
                                     absl::Span<const ImageSize> images) {
      return Hold(lengths, images, text);
    };
    index_options.reuse = !options.rebuild;
    index_options.threads = ThreadsOrCores(c.serve().threads());
    if (options.progress) {
      index_options.progress = [&](const IndexProgress& progress) {
        options.progress(source.name(), progress);
      };
    }
    absl::StatusOr<IndexReport> report =
        BuildIndex(source, config.directory, index_options);
    if (!report.ok()) {
      return Annotate(report.status(), absl::StrCat("source ", source.name()));
    }
    result.report = *std::move(report);
    result.too_long = too_long;
    all.push_back(std::move(result));
  }
  return all;
}

}  // namespace ballast
