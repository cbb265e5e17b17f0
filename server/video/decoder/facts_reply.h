#ifndef BALLAST_SERVER_VIDEO_DECODER_FACTS_REPLY_H_
#define BALLAST_SERVER_VIDEO_DECODER_FACTS_REPLY_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/video/frame_table.h"

namespace ballast {

// Reads the decoder's answer to a request for facts (decoder_protocol.h). The
// process has read untrusted bytes, so nothing in the answer is trusted.
// Errors: INVALID_ARGUMENT (an answer that contradicts itself, a size or number
// of frames beyond the protocol's bounds).
absl::StatusOr<VideoFacts> ParseFacts(absl::string_view answer);

}  // namespace ballast

#endif  // BALLAST_SERVER_VIDEO_DECODER_FACTS_REPLY_H_
