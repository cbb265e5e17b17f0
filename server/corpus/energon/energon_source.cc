#include "server/corpus/energon/energon_source.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/data_path.h"
#include "server/corpus/energon/energon_content.h"
#include "server/corpus/energon/energon_tar.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/read_image.h"
#include "server/corpus/read_videos.h"
#include "server/corpus/source_files.h"

namespace ballast {

absl::StatusOr<RawSample> EnergonSource::ReadRecord(
    const IndexSampleRecord& record, FileView file, absl::string_view file_name,
    ReadParts parts, bool lists) const {
  BALLAST_ASSIGN_OR_RETURN(
      const EnergonTarSample found,
      ReadEnergonSample(file, record.offset, record.offset + record.length));
  const auto at_key = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat("key ", Printable(found.key)));
  };
  absl::StatusOr<EnergonContent> content =
      ReadEnergonContent(file, found, fields_, lists);
  if (!content.ok()) return at_key(content.status());
  if (TextHash(found.key, content->text) != record.text_check) {
    return at_key(AsDataFault(
        absl::DataLossError("this key or its text is not the index's")));
  }
  RawSample sample;
  sample.name = WebDatasetSampleName(file_name, found.key);
  sample.text_format = content->text_format;
  if (parts.text) sample.text = std::move(content->text);
  if (!parts.images) return sample;
  ImagesHash hash;
  for (const EnergonPart& image : content->images) {
    BALLAST_RETURN_IF_ERROR(ReadImage(file, image.data, image.size,
                                      content->images.size(), parts, &hash,
                                      &sample));
  }
  for (const EnergonVideo& video : content->videos) {
    std::vector<ByteRange> ranges;
    for (const EnergonPart& part : video.parts) {
      ranges.push_back({part.data, part.size});
    }
    BALLAST_RETURN_IF_ERROR(
        at_key(ReadMembers(file, ranges, video.is_list, &hash, &sample)));
  }
  if (sample.images.size() != record.num_images ||
      hash.value() != record.image_check) {
    return at_key(AsDataFault(
        absl::DataLossError("its images or videos are not the index's")));
  }
  return sample;
}

}  // namespace ballast
