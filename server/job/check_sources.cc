#include "server/job/check_sources.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cores.h"
#include "common/status_macros.h"
#include "server/corpus/check/index_check.h"
#include "server/corpus/open_source.h"
#include "server/corpus/source_files.h"
#include "server/image/sound_scan.h"
#include "server/job/config_index_key.h"
#include "server/storage/storage.h"
#include "server/text/model_tokenizer.h"
#include "server/text/tokenizer.h"

namespace ballast {
namespace {

absl::StatusOr<IndexKey> KeyOf(v1::Config config) {
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           OpenModelTokenizer(config.mutable_model()));
  return IndexKeyOf(config, *tokenizer);
}

absl::StatusOr<SourceCheck> CheckSource(const v1::Source& source,
                                        const LoadedConfig& config,
                                        const IndexKey& key,
                                        const CheckSourcesOptions& options) {
  SourceCheck result;
  result.source = source.name();
  const std::string path = IndexPath(source, config.directory);
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
  BALLAST_RETURN_IF_ERROR(
      Storage::OfProcess().Configure(config.config.storage()));
  BALLAST_ASSIGN_OR_RETURN(const IndexKey key, KeyOf(config.config));
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
  BALLAST_RETURN_IF_ERROR(
      Storage::OfProcess().Configure(config.config.storage()));
  BALLAST_ASSIGN_OR_RETURN(const IndexKey key, KeyOf(config.config));
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

}  // namespace ballast
