#include "server/corpus/index_writer.h"

#include <cstddef>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/corpus/atomic_file.h"
#include "server/corpus/digest.h"

namespace ballast {
namespace {

template <typename Record>
absl::string_view Bytes(const std::vector<Record>& records) {
  return absl::string_view(reinterpret_cast<const char*>(records.data()),
                           records.size() * sizeof(Record));
}

}  // namespace

absl::Status WriteIndex(const std::string& path,
                        const IndexContents& contents) {
  std::vector<IndexFileRecord> files;
  std::string names;
  for (const IndexContents::DataFile& file : contents.files) {
    files.push_back({names.size(), file.name.size(), file.stamp.size,
                     file.stamp.mtime_ns, file.unreadable});
    names += file.name;
  }
  const absl::string_view sections[] = {Bytes(files), Bytes(contents.samples),
                                        Bytes(contents.left_out),
                                        Bytes(contents.images), names};
  XXH3_state_t body;
  XXH3_64bits_reset(&body);
  for (const absl::string_view section : sections) {
    XXH3_64bits_update(&body, section.data(), section.size());
  }
  const Digest data = DigestOfSamples(contents.samples, contents.images);

  IndexHeader header = {};
  header.magic = kIndexMagic;
  header.version = kIndexVersion;
  header.format = contents.format;
  header.num_files = files.size();
  header.num_samples = contents.samples.size();
  header.num_left_out = contents.left_out.size();
  header.num_images = contents.images.size();
  header.file_table = sizeof(header);
  header.sample_table = header.file_table + sections[0].size();
  header.image_table =
      header.sample_table + sections[1].size() + sections[2].size();
  header.names = header.image_table + sections[3].size();
  header.total_bytes = header.names + names.size();
  for (int half = 0; half < 2; ++half) {
    header.sizes_digest[half] = contents.digests.sizes[half];
    header.lengths_digest[half] = contents.digests.lengths[half];
    header.limits_digest[half] = contents.digests.limits[half];
    header.data_digest[half] = data[half];
  }
  header.body_checksum = XXH3_64bits_digest(&body);
  const absl::string_view header_bytes(reinterpret_cast<const char*>(&header),
                                       sizeof(header));
  header.header_checksum =
      Checksum(header_bytes.substr(0, offsetof(IndexHeader, header_checksum)));
  return WriteFileAtomically(path, {header_bytes, sections[0], sections[1],
                                    sections[2], sections[3], sections[4]});
}

}  // namespace ballast
