#include "server/corpus/open_source.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/config/path_pattern.h"
#include "server/corpus/jsonl/media_root.h"
#include "server/corpus/mock/mock_source.h"
#include "server/corpus/source_files.h"

namespace ballast {
namespace {

bool NeedsIndexing(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status) ||
         absl::IsFailedPrecondition(status);
}

// Refuses an index with images that may be damaged and that the engines would
// decode without a word.
absl::Status RequireChecks(const v1::Source& source,
                           const ImageMarkCounts& counts) {
  if (counts.checked()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "source ", source.name(), ": model.decode is device, and ",
      counts.with(ImageCheckResult::kUnchecked), " of ", counts.marked(),
      " images that JPEG engines may decode have not been checked, and the "
      "engines do not report damage; run `ballast-server index --check "
      "--config "
      "F` with this configuration, or accept wrong pixels of damaged files "
      "with "
      "model.device_unchecked: true"));
}

}  // namespace

EncodedRule EncodedRuleOf(const v1::Model& model) {
  if (model.decode() != v1::Model::DECODE_DEVICE) return EncodedRule::kNone;
  return model.device_unchecked() ? EncodedRule::kUnchecked
                                  : EncodedRule::kChecked;
}

absl::StatusOr<std::unique_ptr<FileSource>> OpenSource(
    const v1::Source& source, absl::string_view directory, const IndexKey& key,
    std::shared_ptr<OpenFileCache> cache, EncodedRule rule) {
  const bool jsonl = source.format() == v1::Source::FORMAT_JSONL;
  if (!jsonl && source.format() != v1::Source::FORMAT_WEBDATASET) {
    return absl::UnimplementedError(
        absl::StrCat("source ", source.name(),
                     ": only webdataset and jsonl sources can be read"));
  }
  // Lists the files before it opens the index, so that a missing data file is
  // reported as such.
  BALLAST_ASSIGN_OR_RETURN(std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  auto index = OpenFreshIndex(source, directory, key, rule);
  if (NeedsIndexing(index.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "source ", source.name(), ": ", index.status().message(),
        "; run `ballast-server index --config F` with this configuration"));
  }
  BALLAST_RETURN_IF_ERROR(index.status());
  if (!jsonl) {
    return std::make_unique<WebDatasetSource>(
        *std::move(index), std::move(files), std::move(cache));
  }
  BALLAST_ASSIGN_OR_RETURN(
      MediaRoot media,
      MediaRoot::Create(ResolvePath(directory, source.media_root())));
  return std::make_unique<JsonlSource>(*std::move(index), std::move(files),
                                       std::move(cache), std::move(media));
}

absl::StatusOr<std::unique_ptr<SampleSource>> OpenAnySource(
    const v1::Source& source, const v1::Config& config,
    absl::string_view directory, const IndexKey& key) {
  if (source.format() == v1::Source::FORMAT_MOCK) {
    return MockSource::Create(source, config.model(), config.batch());
  }
  const EncodedRule rule = EncodedRuleOf(config.model());
  BALLAST_ASSIGN_OR_RETURN(
      std::unique_ptr<SampleSource> opened,
      OpenSource(source, directory, key, OpenFileCache::OfProcess(), rule));
  if (rule == EncodedRule::kChecked) {
    BALLAST_RETURN_IF_ERROR(
        RequireChecks(source, opened->index().mark_counts()));
  }
  return opened;
}

}  // namespace ballast
