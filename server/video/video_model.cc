#include "server/video/video_model.h"

namespace ballast {

void CountLlavaTokens(VideoPool pool, VideoNewline newline, VideoModel* model) {
  const uint32_t patches = model->side / model->patch;
  const uint32_t side =
      pool == VideoPool::kBilinear ? (patches + 1) / 2 : patches / 2;
  model->frame_tokens = side * side;
  if (newline == VideoNewline::kRow) model->frame_tokens += side;
  if (newline == VideoNewline::kFrame) model->frame_tokens += 1;
  model->end_tokens = newline == VideoNewline::kVideo ? 1 : 0;
}

}  // namespace ballast
