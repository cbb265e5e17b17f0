#ifndef BALLAST_SERVER_TEXT_VIDEO_TEXT_H_
#define BALLAST_SERVER_TEXT_VIDEO_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/audio_family.pb.h"
#include "server/media/audio/audio_in_video.h"
#include "server/media/image_plan/image_family.h"
#include "server/media/rows_rule.h"
#include "server/media/video/video_plan.h"
#include "server/sample/source_index.h"
#include "server/text/conversation.h"
#include "server/text/positions.h"
#include "server/text/token_writer.h"

namespace ballast {

// A video, or a medium that travels as rows, in the text. A video is runs of
// placeholders, each between vision start and vision end. Qwen2's and Qwen2.5's
// is one run; Qwen3's is one a temporal patch, each after its time, as "<0.8
// seconds>"; InternVL's is one a frame, after its number, as "Frame1: ", on a
// separate line; LLaVA-OneVision's is one run of pooled frames and a newline,
// LLaVA-Video's one run of pooled frames and their newlines.
struct StreamText {
  uint32_t runs = 1;
  uint32_t run_tokens = 0;  // placeholders of each run
  // Before each run; empty: nothing.
  std::vector<std::string> before;
  // LLaVA-Video: the sentence with the times of its frames, after the run and a
  // line feed; empty: nothing.
  std::string times = "";
  // A medium that travels as rows is one run between the model's marks of it.
  MediumKind kind = MediumKind::kVideo;
  // In place of `runs`, with its audio: runs of both, between the model's marks
  // of both.
  std::vector<AudioInVideoRun> with_audio = {};
};

// The streams of a sample, by kind, in its text.
struct MediaText {
  std::vector<StreamText> texts;  // audio of a video has none
  std::vector<GridThw> grids;     // one for each run of videos' placeholders
  uint64_t placeholders = 0;
};

// Plans them. `video` and `rows` are the model's, or null if it takes none.
// Errors: INVALID_ARGUMENT (a medium of which the model takes none); as
// PlanIndexedVideo and RowsRule::Plan, with the medium's number.
absl::StatusOr<MediaText> PlanMediaText(const VideoModel* video,
                                        const RowsRule* rows,
                                        const MediaList& media);

// The text of a planned video, as the processor of `rule` writes it.
StreamText TextOfVideo(VideoRule rule, const VideoPlan& plan, uint32_t merge);

// The text of a medium of so many tokens, of a kind that travels as rows.
StreamText TextOfRows(MediumKind kind, uint64_t tokens);
// Its pieces. `number`: of the medium in its sample, from 1.
ImagePieces RowsPieces(const StreamText& medium,
                       const v1::AudioFamily::Marks& marks, size_t number);

// The pieces of the text of a video: for each run the text before it and,
// between the model's marks of an image, its placeholders (InternVL: "Frame1:
// <img>…</img>\nFrame2: …"). `has_own_id`: they are a video's.
// `audio`: the marks of the model's audio, of a video with its audio.
ImagePieces VideoPieces(const StreamText& video, const ImageMarks& marks,
                        bool has_own_id,
                        const v1::AudioFamily::Marks* audio = nullptr);

// Appends the grids of the video's runs, for ComputePositions: of one run with
// the positions between temporal patches, or one of t = 1 a run. Qwen2.5-VL
// has 2 positions a second, Qwen2.5-Omni 25, Qwen3-Omni 13, Qwen2 one a
// temporal patch.
void AppendGrids(const VideoModel& video, const VideoPlan& plan,
                 std::vector<GridThw>* grids);

// The fault of a sample that LLaVA-Video's training code does not take: it has
// one video or images, in a conversation.
absl::Status CheckLlavaVideos(const MediaCounts& media, bool is_conversation);

// Writes the sentence of times (StreamText) where LLaVA-NeXT does: the first
// turn of the user loses its marks and begins with one of a video, a line feed,
// the sentence and a line feed. Errors: INVALID_ARGUMENT (another turn than a
// system turn before it, or none).
absl::Status AddTimes(absl::string_view times, std::vector<Turn>* turns);

// Replaces the marks of all kinds in the texts of one sample by image marks,
// and returns for each mark in order what it was. In a sample of videos without
// images `<image>` marks a video, too. Texts without any mark stay as they are:
// their media are in the order of MediumKind. `rows` is the model's: the mark
// of another such kind is text. Errors: INVALID_ARGUMENT (another number of
// marks than of `media`).
absl::StatusOr<MediaOrder> MarkMedia(const MediaCounts& media,
                                     const RowsRule* rows,
                                     absl::Span<std::string* const> texts);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_VIDEO_TEXT_H_
