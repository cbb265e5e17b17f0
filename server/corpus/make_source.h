#ifndef BALLAST_SERVER_CORPUS_MAKE_SOURCE_H_
#define BALLAST_SERVER_CORPUS_MAKE_SOURCE_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/corpus/file_source.h"
#include "server/corpus/index/index_file.h"
#include "server/corpus/open_file_cache.h"
#include "server/corpus/source_files.h"

namespace ballast {

// OK if the format of `source` has files and this build reads it. Otherwise
// UNIMPLEMENTED, naming the source.
absl::Status CheckFormatIsRead(const v1::Source& source);

// The reader of `source`'s format over its index and data files, which are in
// the order of the index. Does not check that they belong together: OpenSource
// does. Errors: as CheckFormatIsRead; as MediaRoot::Create (jsonl) and
// OpenEnergonFolder (energon).
absl::StatusOr<std::unique_ptr<FileSource>> MakeFileSource(
    const v1::Source& source, absl::string_view directory,
    std::shared_ptr<const IndexFile> index, std::vector<SourceFile> files,
    std::shared_ptr<OpenFileCache> cache);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_MAKE_SOURCE_H_
