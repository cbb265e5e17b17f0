#ifndef BALLAST_SERVER_CORPUS_ENERGON_RAW_MEMBERS_H_
#define BALLAST_SERVER_CORPUS_ENERGON_RAW_MEMBERS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/energon/energon_tar.h"
#include "server/corpus/file.h"
#include "server/corpus/record_parser.h"

namespace ballast {

// A sample of a tar file for a recipe: all its members, with the bytes of those
// that are no image, video or audio by their names. Blocks on the disk. Errors:
// a data fault (two members of one name; over the bounds of limits.h); as
// FileView::ReadAt.
absl::StatusOr<RawRecord> ReadRawMembers(FileView file, EnergonTarSample sample,
                                         absl::string_view file_name);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_ENERGON_RAW_MEMBERS_H_
