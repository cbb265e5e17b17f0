#ifndef BALLAST_SERVER_CORPUS_ENERGON_ENERGON_SOURCE_H_
#define BALLAST_SERVER_CORPUS_ENERGON_ENERGON_SOURCE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/energon/energon_fields.h"
#include "server/corpus/file_source.h"

namespace ballast {

// Samples in the tar files of an Energon folder. Reads the headers of a
// sample's parts, its text, and images if requested; index.sqlite is read by
// the index alone.
class EnergonSource final : public FileSource {
 public:
  EnergonSource(std::shared_ptr<const IndexFile> index,
                std::vector<SourceFile> files,
                std::shared_ptr<OpenFileCache> cache, EnergonFields fields)
      : FileSource(std::move(index), std::move(files), std::move(cache)),
        fields_(std::move(fields)) {}

 private:
  absl::StatusOr<RawSample> ReadRecord(const IndexSampleRecord& record,
                                       FileView file,
                                       absl::string_view file_name,
                                       ReadParts parts,
                                       bool lists) const override;
  bool HoldsImages() const override { return true; }

  const EnergonFields fields_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_ENERGON_ENERGON_SOURCE_H_
