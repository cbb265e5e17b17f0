#include "server/corpus/index/index_tables.h"

#include <optional>

#include "common/align.h"
#include "server/corpus/index/index_pages.h"

namespace ballast {
namespace {

// Returns whether `count` records of `size` bytes at `offset` end exactly at
// `end`.
bool Fills(uint64_t offset, uint64_t count, uint64_t size, uint64_t end) {
  return offset <= end && count <= (end - offset) / size &&
         offset + count * size == end;
}

// Number of pages of records.
uint64_t RecordPages(const IndexHeader& header) {
  return (header.page_checksums - header.sample_table) / kIndexPageBytes;
}

// Returns whether both tables of videos end where the marks begin.
bool VideosFit(const IndexHeader& header, const IndexMarksHeader& marks,
               const IndexVideosHeader& videos) {
  const uint64_t starts =
      videos.num_videos == 0 ? 0 : header.num_samples + header.num_left_out + 1;
  return videos.num_sample_videos <= videos.num_videos &&
         videos.start_table <= marks.mark_table &&
         videos.video_table <= marks.mark_table &&
         Fills(videos.start_table, starts, sizeof(uint64_t),
               videos.video_table) &&
         Fills(videos.video_table, videos.num_videos, sizeof(IndexedVideo),
               marks.mark_table);
}

// Returns the end of the last table of records, or nullopt if they do not fit
// one after another.
std::optional<uint64_t> EndOfRecords(const IndexHeader& header,
                                     const IndexMarksHeader* marks,
                                     const IndexVideosHeader* videos) {
  const uint64_t end = header.page_checksums;
  if (header.image_table > end ||
      header.num_images > (end - header.image_table) / sizeof(ImageSize)) {
    return std::nullopt;
  }
  const uint64_t images_end =
      header.image_table + header.num_images * sizeof(ImageSize);
  if (marks == nullptr) return images_end;
  const bool has_hashes = marks->num_hashes != 0;
  if (marks->hash_table != images_end || marks->mark_table > end ||
      (has_hashes && marks->num_hashes != header.num_images) ||
      !Fills(images_end, marks->num_hashes, sizeof(uint64_t),
             videos == nullptr ? marks->mark_table : videos->start_table) ||
      (videos != nullptr && !VideosFit(header, *marks, *videos)) ||
      header.num_images > (end - marks->mark_table) / sizeof(ImageMark)) {
    return std::nullopt;
  }
  return marks->mark_table + header.num_images * sizeof(ImageMark);
}

}  // namespace

uint64_t TablePages(const IndexHeader& header) {
  return AlignUp(RecordPages(header) * sizeof(uint64_t), kIndexPageBytes) /
         kIndexPageBytes;
}

bool TablesFit(const IndexHeader& header, const IndexMarksHeader* marks,
               const IndexVideosHeader* videos) {
  // Each is below 2^63, so that the sum does not wrap.
  if (header.num_samples > header.total_bytes ||
      header.num_left_out > header.total_bytes) {
    return false;
  }
  const uint64_t records = header.num_samples + header.num_left_out;
  if (header.sample_table % kIndexPageBytes != 0 ||
      header.page_checksums % kIndexPageBytes != 0 ||
      header.names > header.sample_table ||
      header.sample_table > header.page_checksums ||
      header.page_checksums > header.total_bytes) {
    return false;
  }
  const uint64_t header_bytes =
      sizeof(IndexHeader) + (marks == nullptr ? 0 : sizeof(IndexMarksHeader)) +
      (videos == nullptr ? 0 : sizeof(IndexVideosHeader));
  const std::optional<uint64_t> records_end =
      EndOfRecords(header, marks, videos);
  if (!records_end.has_value()) return false;
  return header.file_table == header_bytes &&
         Fills(header.file_table, header.num_files, sizeof(IndexFileRecord),
               header.table_checksums) &&
         header.names >= header.table_checksums &&
         (header.names - header.table_checksums) % sizeof(uint64_t) == 0 &&
         (header.names - header.table_checksums) / sizeof(uint64_t) >=
             TablePages(header) &&
         Fills(header.sample_table, records, sizeof(IndexSampleRecord),
               header.image_table) &&
         header.page_checksums - *records_end < kIndexPageBytes &&
         Fills(header.page_checksums, RecordPages(header), sizeof(uint64_t),
               header.total_bytes);
}

}  // namespace ballast
