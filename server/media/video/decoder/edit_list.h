#ifndef BALLAST_SERVER_MEDIA_VIDEO_DECODER_EDIT_LIST_H_
#define BALLAST_SERVER_MEDIA_VIDEO_DECODER_EDIT_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/media/video/decoder/media_input.h"

namespace ballast::video_decoder {

// An entry of the edit list of a track of MP4 (`elst`, ISO/IEC 14496-12).
struct Edit {
  uint64_t duration = 0;   // in units of the movie
  int64_t media_time = 0;  // in units of the track; -1: nothing is played
  bool is_plain = true;    // played at its rate
};

struct EditList {
  uint32_t units_a_second = 0;  // of the movie
  std::vector<Edit> edits;      // in the order in which they are played
};

// The edit list of track `track` of an MP4 file; empty: it has none.
EditList ReadEditList(MediaInput* input, int track);

// Whether all that `list` plays is played at its rate. FFmpeg knows no other:
// it plays as if there were none.
bool IsPlain(const EditList& list);

// Samples of a stream that are played, or as many of silence.
struct Stretch {
  int64_t from = 0;  // in the decoded stream
  int64_t to = 0;
  bool is_silent = false;

  int64_t length() const { return to - from; }
};

inline constexpr int64_t kToTheEnd = INT64_MAX;

// What an edit list plays of a stream of `samples` samples at `rate`, or of an
// unknown number (kToTheEnd), when its last edit goes to the end: an edit ends
// where the stream does if that is less than a unit away. What is played begins
// with the first sample and ends with the last: silence is between two edits
// alone. `unit` are the samples of a unit of the track. Pure. Returns false
// with a reason: an edit at another rate, or of samples before those of the
// edit before it; nothing is played.
bool GetStretches(const EditList& list, double unit, uint32_t rate,
                  int64_t samples, std::vector<Stretch>* stretches,
                  std::string* reason);

}  // namespace ballast::video_decoder

#endif  // BALLAST_SERVER_MEDIA_VIDEO_DECODER_EDIT_LIST_H_
