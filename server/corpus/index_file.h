#ifndef BALLAST_SERVER_CORPUS_INDEX_FILE_H_
#define BALLAST_SERVER_CORPUS_INDEX_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/corpus/digest.h"
#include "server/corpus/file.h"
#include "server/corpus/index_format.h"
#include "server/corpus/index_key.h"
#include "server/corpus/source_index.h"

namespace ballast {

// An index file mapped into memory. Thread-safe. A file that is replaced, as
// BuildIndex does, leaves the mapping as it is; one that is cut short in place
// kills the process that touches the lost pages, as with every mapping.
class IndexFile final : public SourceIndex {
 public:
  // Maps `path` and checks all of it: checksums, and that every record stays
  // inside the tables and files that it refers to. Reads the whole file once.
  // Errors: NOT_FOUND and others of the disk; FAILED_PRECONDITION (another
  // version); DATA_LOSS (not an index, damaged).
  static absl::StatusOr<std::shared_ptr<const IndexFile>> Open(
      const std::string& path);

  ~IndexFile() override;
  IndexFile(const IndexFile&) = delete;
  IndexFile& operator=(const IndexFile&) = delete;

  uint64_t size() const override { return header_->num_samples; }
  IndexedSample sample(uint64_t ordinal) const override;
  std::string digest() const override;

  const std::string& path() const { return path_; }
  // v1::Source::Format as a number.
  uint32_t format() const { return header_->format; }
  const IndexDigests& digests() const { return digests_; }
  // size(), and the samples that are left out, which follow.
  uint64_t num_records() const { return samples_.size(); }
  // `number` must be below num_records().
  const IndexSampleRecord& record(uint64_t number) const {
    return samples_[number];
  }
  absl::Span<const ImageSize> images(uint64_t number) const {
    return images_.subspan(samples_[number].first_image,
                           samples_[number].num_images);
  }
  uint64_t num_images() const { return header_->num_images; }
  // The data files, in order. `number` must be below num_files().
  uint64_t num_files() const { return header_->num_files; }
  absl::string_view file_name(uint64_t number) const;
  FileStamp file_stamp(uint64_t number) const;
  uint64_t file_unreadable(uint64_t number) const {
    return files_[number].unreadable;
  }

 private:
  IndexFile(std::string path, absl::string_view mapped);

  absl::Status Check();
  absl::Status CheckHeader() const;
  absl::Status CheckFiles() const;
  absl::Status CheckSamples() const;
  absl::Status CheckOrder() const;
  absl::Status Damaged(absl::string_view reason) const;

  std::string path_;
  absl::string_view mapped_;
  const IndexHeader* header_ = nullptr;
  IndexDigests digests_;
  absl::Span<const IndexFileRecord> files_;
  absl::Span<const IndexSampleRecord> samples_;
  absl::Span<const ImageSize> images_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_FILE_H_
