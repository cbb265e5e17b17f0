#ifndef BALLAST_SERVER_DATA_OPEN_SOURCE_H_
#define BALLAST_SERVER_DATA_OPEN_SOURCE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/data/file_source.h"
#include "server/data/index/index_options.h"
#include "server/sample/sample_source.h"
#include "server/sample/source_index.h"

namespace ballast {

// The rule by which the images of a job travel encoded, from model.decode
// and model.device_unchecked.
EncodedRule GetEncodedRule(const v1::Model& model);

// Opens `source` for reading, through the index that BuildIndex made of it with
// the same `key`. Paths are relative to `directory`. `cache` keeps the data
// files open; a Read in progress opens a few media files. `rule` says which
// images travel encoded. Errors:
// FAILED_PRECONDITION (the index is missing, damaged or stale: the message says
// which, and names the command that builds it); UNIMPLEMENTED (mock); as
// ExpandPath and the disk.
absl::StatusOr<std::unique_ptr<FileSource>> OpenSource(
    const v1::Source& source, absl::string_view directory, const IndexKey& key,
    std::shared_ptr<OpenFileCache> cache = OpenFileCache::OfProcess(),
    EncodedRule rule = EncodedRule::kNone);

// Opens any source of `config`, a loaded one. A mock source is generated and
// needs neither index nor key. Errors: as OpenSource and MockSource::Create;
// FAILED_PRECONDITION (model.decode is `device` and the index lacks checks).
absl::StatusOr<std::unique_ptr<SampleSource>> OpenAnySource(
    const v1::Source& source, const v1::Config& config,
    absl::string_view directory, const IndexKey& key);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_OPEN_SOURCE_H_
