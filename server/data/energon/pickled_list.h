#ifndef BALLAST_SERVER_DATA_ENERGON_PICKLED_LIST_H_
#define BALLAST_SERVER_DATA_ENERGON_PICKLED_LIST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/files/file.h"
#include "server/files/object_store.h"

namespace ballast {

// The bytes objects of a pickled list.
struct PickledList {
  // Of each item its objects in order, as ranges of the file: itself, or what
  // is in its list.
  std::vector<std::vector<ByteRange>> items;
  bool has_lists = false;  // items are lists; otherwise all are bytes
};

// Reads a pickle of Python, in `range` of a file, without running it: a list of
// bytes, or a list of lists of bytes, at most kMaxImages objects, as
// pickle.dumps writes it with protocol 3 to 5. Of the objects nothing is read.
// Errors: a data fault (anything else in it, named by its opcode; damage); as
// FileView::ReadAt.
absl::StatusOr<PickledList> ReadPickledList(const FileView& file,
                                            ByteRange range);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_ENERGON_PICKLED_LIST_H_
