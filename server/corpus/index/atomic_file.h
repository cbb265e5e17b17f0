#ifndef BALLAST_SERVER_CORPUS_INDEX_ATOMIC_FILE_H_
#define BALLAST_SERVER_CORPUS_INDEX_ATOMIC_FILE_H_

#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Replaces `path` with `pieces`, concatenated: writes a file beside it, syncs
// it to the disk and renames it. Creates missing folders. After an error `path`
// is as it was. Two concurrent writers do not disturb each other; the last
// one's file stays. Blocks on the disk. Errors: as File, naming the file.
absl::Status WriteFileAtomically(
    const std::string& path, std::initializer_list<absl::string_view> pieces);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_ATOMIC_FILE_H_
