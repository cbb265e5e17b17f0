#include "server/corpus/energon/energon_source.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_path.h"
#include "server/corpus/energon/energon_content.h"
#include "server/corpus/energon/energon_tar.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/read_videos.h"
#include "server/corpus/source_files.h"

namespace ballast {

absl::StatusOr<RawSample> EnergonSource::ReadRecord(
    const IndexSampleRecord& record, FileView file, absl::string_view file_name,
    ReadParts parts) const {
  BALLAST_ASSIGN_OR_RETURN(
      const EnergonTarSample found,
      ReadEnergonSample(file, record.offset, record.offset + record.length));
  const auto at_key = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat("key ", Printable(found.key)));
  };
  absl::StatusOr<EnergonContent> content =
      ReadEnergonContent(file, found, fields_);
  if (!content.ok()) return at_key(content.status());
  if (TextHash(found.key, content->text) != record.text_check) {
    return at_key(
        absl::DataLossError("this key or its text is not the index's"));
  }
  RawSample sample;
  sample.name = WebDatasetSampleName(file_name, found.key);
  sample.text_format = content->text_format;
  if (parts.text) sample.text = std::move(content->text);
  if (!parts.images) return sample;
  ImagesHash hash;
  for (const EnergonPart& image : content->images) {
    BALLAST_ASSIGN_OR_RETURN(std::string bytes,
                             file.ReadAt(image.data, image.size));
    hash.Add(bytes.size(),
             absl::string_view(bytes).substr(0, ImagesHash::kHeadBytes));
    sample.images.push_back(std::move(bytes));
  }
  for (const EnergonPart& video : content->videos) {
    BALLAST_RETURN_IF_ERROR(
        at_key(ReadVideo(file, video.data, video.size, &hash, &sample)));
  }
  if (sample.images.size() != record.num_images ||
      hash.value() != record.image_check) {
    return at_key(
        absl::DataLossError("its images or videos are not the index's"));
  }
  return sample;
}

}  // namespace ballast
