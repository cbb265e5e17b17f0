#ifndef BALLAST_SERVER_COMMAND_PREVIEW_VIEW_JSON_H_
#define BALLAST_SERVER_COMMAND_PREVIEW_VIEW_JSON_H_

#include <string>

#include "server/command/preview/sample_view.h"
#include "server/image/image_header.h"
#include "server/job/job_setup.h"

namespace ballast {

// "jpeg", "png" or "webp".
const char* ImageFormatName(ImageFormat format);

// The preview page's data, one JSON object each. Bytes that are not UTF-8 stand
// as U+FFFD.

// model (the profile's name), splits [{name, positions (the first without data;
// null: they never end), sources [{name, samples}]}].
std::string JobJson(const OpenedJob& job);

// split, position, step, micro_batch, source, ordinal, name, file, offset,
// tokens, label_tokens, patches, fault (null, or why the sample cannot be
// built), modules [{module, cost, reader, owner}], images [{width, height,
// format, bytes} or {bytes, fault}]: as stored, crops [{width, height, grid_w,
// grid_h}]: as the trainer gets them, with the frames of videos, runs [{first,
// tokens, image, video, supervised, text}].
std::string ViewJson(const SampleView& view);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PREVIEW_VIEW_JSON_H_
