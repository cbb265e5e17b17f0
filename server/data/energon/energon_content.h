#ifndef BALLAST_SERVER_DATA_ENERGON_ENERGON_CONTENT_H_
#define BALLAST_SERVER_DATA_ENERGON_ENERGON_CONTENT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/data/energon/energon_folder.h"
#include "server/data/energon/energon_tar.h"
#include "server/files/file.h"
#include "server/sample/medium_kind.h"
#include "server/sample/sample_source.h"

namespace ballast {

// A sample of an Energon folder: its text, read, and where its media are.
struct EnergonContent {
  RawSample::TextFormat text_format = RawSample::TextFormat::kConversation;
  std::string text;
  // Kind by kind, each in the order in which the text refers to them.
  std::vector<MediumParts<EnergonPart>> media;
};

// Reads the text of `sample`, whose parts are in `file`. `lists` and `audios`
// as in WebDatasetReader, for crude samples. Errors: INVALID_ARGUMENT (a field
// without a part, a part that is not what the field wants, JSON without the
// key, a mark of a video without one, over the bounds of data_fault.h); as
// File::ReadAt.
absl::StatusOr<EnergonContent> ReadEnergonContent(
    FileView file, const EnergonTarSample& sample, const EnergonFields& fields,
    bool lists = true, bool audios = true);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_ENERGON_ENERGON_CONTENT_H_
