#ifndef BALLAST_SERVER_COMMAND_CHECK_TEXT_H_
#define BALLAST_SERVER_COMMAND_CHECK_TEXT_H_

#include <string>

#include "server/corpus/index/image_mark.h"
#include "server/corpus/journal.h"
#include "server/job/check_sources.h"

namespace ballast {

// Indented lines that say how many images JPEG engines may decode, how many of
// them have been checked, and why the others stay with the server:
//   JPEG engines may decode 950 of 1000 images: 945 clean, 5 unsound
//   the server decodes: 30 not baseline of 8 bits, 20 not a JPEG
// Pure.
std::string MarksText(const ImageMarkCounts& marks);

// The lines that `index --check` prints of a source. Pure.
std::string CheckText(const SourceCheck& check, const Shard& shard);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_CHECK_TEXT_H_
