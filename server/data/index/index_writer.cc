#include "server/data/index/index_writer.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/aligned_buffer.h"
#include "server/data/index/index_file.h"

namespace ballast {
namespace {

template <typename Record>
absl::string_view AsBytes(const std::vector<Record>& records) {
  return absl::string_view(reinterpret_cast<const char*>(records.data()),
                           records.size() * sizeof(Record));
}

template <typename Header>
absl::string_view HeaderBytes(const Header& header) {
  return absl::string_view(reinterpret_cast<const char*>(&header),
                           sizeof(header));
}

// Zeros that fill the last page after `size` bytes.
std::string Padding(uint64_t size) {
  return std::string(AlignUp(size, kIndexPageBytes) - size, '\0');
}

// The marks, one for each image.
std::vector<ImageMark> GetMarks(const IndexContents& contents) {
  std::vector<ImageMark> marks = contents.marks;
  marks.resize(contents.images.size());
  return marks;
}

// The hashes of all images, or of clean ones and 0 for others; empty if none
// has one. So equal results give equal files, however they came about.
std::vector<uint64_t> GetHashes(const IndexContents& contents,
                                const std::vector<ImageMark>& marks) {
  if (contents.is_hashed) return contents.content_hashes;
  const auto is_clean = [](ImageMark mark) {
    return mark.check() == ImageCheckResult::kClean;
  };
  if (std::none_of(marks.begin(), marks.end(), is_clean)) return {};
  std::vector<uint64_t> hashes = contents.content_hashes;
  hashes.resize(marks.size());
  for (size_t i = 0; i < marks.size(); ++i) {
    if (!is_clean(marks[i])) hashes[i] = 0;
  }
  return hashes;
}

// The first video of each of `records` records, and their number; empty without
// videos.
std::vector<uint64_t> VideoStarts(const IndexContents& contents,
                                  uint64_t records) {
  std::vector<uint64_t> starts;
  if (contents.streams.empty()) return starts;
  starts.reserve(records + 1);
  uint64_t video = 0;
  for (uint64_t i = 0; i < records; ++i) {
    starts.push_back(video);
    while (video < contents.streams.size() &&
           contents.stream_records[video] == i) {
      ++video;
    }
  }
  starts.push_back(video);
  return starts;
}

// The first time of each of `starts`' records, and their number; empty without
// times.
std::vector<uint64_t> TimeStarts(const IndexContents& contents,
                                 const std::vector<uint64_t>& starts) {
  std::vector<uint64_t> first;
  if (contents.times.empty()) return first;
  first.reserve(starts.size());
  uint64_t video = 0;
  uint64_t time = 0;
  for (const uint64_t start : starts) {
    while (video < start) time += contents.streams[video++].times();
    first.push_back(time);
  }
  return first;
}

IndexMarksHeader GetMarksHeader(const IndexContents& contents,
                                const std::vector<ImageMark>& marks,
                                const std::vector<uint64_t>& hashes,
                                uint64_t hash_table, uint64_t mark_table) {
  IndexMarksHeader found = {};
  found.rules = kMarkRules;
  found.hash_table = hash_table;
  found.mark_table = mark_table;
  found.num_hashes = hashes.size();
  ImageMarkCounts counts;
  for (const IndexSampleRecord& sample : contents.samples) {
    for (const ImageMark mark : absl::MakeConstSpan(marks).subspan(
             sample.first_image, sample.num_images)) {
      counts.Add(mark);
    }
  }
  std::copy(counts.checks.begin(), counts.checks.end(), found.checks);
  std::copy(counts.refusals.begin(), counts.refusals.end(), found.refusals);
  const Digest checked =
      DigestOfEncoded(contents.samples, marks, hashes, EncodedRule::kChecked);
  const Digest unchecked =
      DigestOfEncoded(contents.samples, marks, hashes, EncodedRule::kUnchecked);
  for (int half = 0; half < 2; ++half) {
    found.checked_digest[half] = checked[half];
    found.unchecked_digest[half] = unchecked[half];
  }
  return found;
}

}  // namespace

absl::Status WriteIndex(const std::string& path,
                        const IndexContents& contents) {
  std::vector<IndexFileRecord> files;
  std::vector<int64_t> media_times;
  std::string names;
  for (const IndexContents::DataFile& file : contents.files) {
    files.push_back({names.size(), file.name.size(), file.stamp.size,
                     file.stamp.mtime_ns, file.unreadable});
    media_times.push_back(file.media_time_ns);
    names += file.name;
  }
  const uint64_t num_records =
      contents.samples.size() + contents.left_out.size();
  const std::vector<ImageMark> marks = GetMarks(contents);
  const std::vector<uint64_t> hashes = GetHashes(contents, marks);
  const std::vector<uint64_t> starts = VideoStarts(contents, num_records);
  const std::vector<uint64_t> time_starts = TimeStarts(contents, starts);
  std::vector<uint64_t> video_hashes;
  if (contents.is_hashed) video_hashes = contents.stream_hashes;
  if (contents.is_hashed && (hashes.size() != contents.images.size() ||
                             video_hashes.size() != contents.streams.size())) {
    return absl::InternalError(
        absl::StrCat(path, ": ", hashes.size(), " and ", video_hashes.size(),
                     " hashes of ", contents.images.size(), " images and ",
                     contents.streams.size(), " videos"));
  }
  if (!contents.times.empty() && time_starts.back() != contents.times.size()) {
    return absl::InternalError(absl::StrCat(path, ": ", contents.times.size(),
                                            " times of frames, and videos of ",
                                            time_starts.back()));
  }
  // In the order of the file.
  std::vector<absl::string_view> records = {
      AsBytes(contents.samples), AsBytes(contents.left_out),
      AsBytes(contents.images),  AsBytes(hashes),
      AsBytes(starts),           AsBytes(contents.streams),
      AsBytes(video_hashes),     AsBytes(time_starts),
      AsBytes(contents.times),   AsBytes(marks)};
  uint64_t record_bytes = 0;
  for (const absl::string_view table : records) record_bytes += table.size();
  const std::string record_padding = Padding(record_bytes);
  records.push_back(record_padding);
  const std::vector<uint64_t> page_checksums = PageChecksums(records);
  const std::vector<uint64_t> table_checksums =
      PageChecksums({AsBytes(page_checksums)});

  IndexHeader header = {};
  IndexVideosHeader videos_header = {};
  IndexHashesHeader hashes_header = {};
  IndexTimesHeader times_header = {};
  header.magic = kIndexMagic;
  header.version = kIndexVersion;
  header.format = contents.format;
  header.num_files = files.size();
  header.num_samples = contents.samples.size();
  header.num_left_out = contents.left_out.size();
  header.num_images = contents.images.size();
  header.file_table = kIndexHeaderBytes;
  hashes_header.media_times = header.file_table + AsBytes(files).size();
  header.table_checksums =
      hashes_header.media_times + AsBytes(media_times).size();
  header.names = header.table_checksums + AsBytes(table_checksums).size() +
                 AsBytes(contents.group_starts).size();
  names += Padding(header.names + names.size());
  header.sample_table = header.names + names.size();
  header.image_table =
      header.sample_table + num_records * sizeof(IndexSampleRecord);
  const uint64_t hash_table =
      header.image_table + AsBytes(contents.images).size();
  videos_header.num_videos = contents.streams.size();
  videos_header.start_table = hash_table + AsBytes(hashes).size();
  videos_header.video_table =
      videos_header.start_table + AsBytes(starts).size();
  videos_header.num_sample_videos =
      starts.empty() ? 0 : starts[contents.samples.size()];
  for (uint32_t i = 0; i < videos_header.num_sample_videos; ++i) {
    videos_header.num_sample_clips +=
        contents.streams[i].kind() != MediumKind::kVideo;
  }
  hashes_header.is_hashed = contents.is_hashed ? 1 : 0;
  hashes_header.num_video_hashes = video_hashes.size();
  hashes_header.video_hash_table =
      videos_header.video_table + AsBytes(contents.streams).size();
  times_header.num_times = contents.times.size();
  times_header.start_table =
      hashes_header.video_hash_table + AsBytes(video_hashes).size();
  times_header.time_table =
      times_header.start_table + AsBytes(time_starts).size();
  const uint64_t mark_table =
      times_header.time_table + AsBytes(contents.times).size();
  header.page_checksums =
      header.sample_table + record_bytes + record_padding.size();
  header.total_bytes = header.page_checksums + AsBytes(page_checksums).size();
  const auto sample_starts = absl::MakeConstSpan(starts).first(
      starts.empty() ? 0 : contents.samples.size() + 1);
  const Digest data = DigestOfSamples(
      contents.samples, contents.images, contents.group_starts, sample_starts,
      absl::MakeConstSpan(contents.streams)
          .first(videos_header.num_sample_videos),
      absl::MakeConstSpan(contents.times)
          .first(time_starts.empty() ? 0
                                     : time_starts[contents.samples.size()]));
  const Digest content = contents.is_hashed
                             ? DigestOfHashes(contents.samples, hashes,
                                              sample_starts, video_hashes)
                             : Digest{};
  for (int half = 0; half < 2; ++half) {
    header.sizes_digest[half] = contents.digests.sizes[half];
    header.lengths_digest[half] = contents.digests.lengths[half];
    header.limits_digest[half] = contents.digests.limits[half];
    header.data_digest[half] = data[half];
    hashes_header.hashes_digest[half] = content[half];
  }
  const IndexMarksHeader marks_header =
      GetMarksHeader(contents, marks, hashes, hash_table, mark_table);
  const std::string head = absl::StrCat(
      HeaderBytes(marks_header), HeaderBytes(videos_header),
      HeaderBytes(hashes_header), HeaderBytes(times_header), AsBytes(files),
      AsBytes(media_times), AsBytes(table_checksums),
      AsBytes(contents.group_starts), names);
  header.head_checksum = Checksum(head);
  header.header_checksum = Checksum(
      HeaderBytes(header).substr(0, offsetof(IndexHeader, header_checksum)));
  std::vector<absl::string_view> pieces = {HeaderBytes(header), head};
  pieces.insert(pieces.end(), records.begin(), records.end());
  pieces.push_back(AsBytes(page_checksums));
  return WriteFileAtomically(path, pieces);
}

}  // namespace ballast
