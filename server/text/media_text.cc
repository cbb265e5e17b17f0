#include "server/text/media_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status_macros.h"
#include "server/model/model_videos.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// tokens_per_second of the released checkpoints of Qwen2.5-VL.
constexpr float kPositionsPerSecond = 2;

// LLaVA-NeXT's add_time_instruction, to the letter. Python's .2f and this round
// the exact value half to even.
std::string GetTimes(const VideoPlan& plan) {
  std::string times;
  for (const double seconds : plan.told_seconds) {
    absl::StrAppendFormat(&times, "%s%.2fs", times.empty() ? "" : ",", seconds);
  }
  return absl::StrFormat(
      "The video lasts for %.2f seconds, and %d frames are uniformly sampled "
      "from it. These frames are located at %s.Please answer the following "
      "questions related to this video.",
      plan.told_length, plan.told_seconds.size(), times);
}

}  // namespace

StreamText TextOfVideo(VideoRule rule, const VideoPlan& plan, uint32_t merge) {
  StreamText text;
  if (rule == VideoRule::kInternVl) {
    text.runs = plan.grid_t;
    text.run_tokens = static_cast<uint32_t>(plan.tokens / plan.grid_t);
    for (uint32_t i = 1; i <= plan.grid_t; ++i) {
      text.before.push_back(absl::StrCat(i > 1 ? "\n" : "", "Frame", i, ": "));
    }
    return text;
  }
  if (rule == VideoRule::kOneVision || rule == VideoRule::kLlava) {
    text.run_tokens = static_cast<uint32_t>(plan.tokens);
    if (!plan.told_seconds.empty()) text.times = GetTimes(plan);
    return text;
  }
  const uint32_t of_patch = plan.grid_h * plan.grid_w / (merge * merge);
  if (rule != VideoRule::kQwen3) {
    text.run_tokens = plan.grid_t * of_patch;
    return text;
  }
  text.runs = plan.grid_t;
  text.run_tokens = of_patch;
  for (const double seconds : plan.seconds) {
    // Python's f"{seconds:.1f}": both round the exact value half to even.
    text.before.push_back(absl::StrFormat("<%.1f seconds>", seconds));
  }
  return text;
}

StreamText TextOfRows(MediumKind kind, uint64_t tokens) {
  StreamText text;
  text.run_tokens = static_cast<uint32_t>(tokens);
  text.kind = kind;
  return text;
}

ImagePieces RowsPieces(const StreamText& medium,
                       const v1::AudioFamily::Marks& marks, size_t number) {
  ImagePieces pieces;
  const auto add_text = [&](const std::string& mark) {
    if (mark.empty()) return;
    pieces.push_back(
        {0, absl::StrReplaceAll(mark, {{"{n}", absl::StrCat(number)}})});
  };
  add_text(marks.before());
  pieces.push_back({medium.run_tokens, "", false, /*is_audio=*/true});
  add_text(marks.after());
  return pieces;
}

absl::StatusOr<MediaText> PlanMediaText(const VideoModel* video,
                                        const RowsRule* rows,
                                        const MediaList& media) {
  MediaText text;
  std::vector<uint64_t> heard;   // tokens of each video's audio
  std::vector<uint64_t> others;  // of each medium in rows that is of no video
  for (const IndexedMedium& medium : media) {
    if (medium.kind == MediumKind::kImage) continue;
    const bool is_video = medium.kind == MediumKind::kVideo;
    if (is_video ? video == nullptr
                 : rows == nullptr || rows->kind() != medium.kind) {
      return absl::InvalidArgumentError(absl::StrCat(
          MediumName(medium.kind), " is not supported for this model.profile"));
    }
    if (is_video) continue;
    const bool is_heard = medium.stream->is_in_video();
    std::vector<uint64_t>& tokens = is_heard ? heard : others;
    const absl::StatusOr<RowsPlan> plan = rows->Plan(*medium.stream);
    if (!plan.ok()) {
      return Annotate(plan.status(), absl::StrCat(MediumName(medium.kind),
                                                  is_heard ? " of video " : " ",
                                                  tokens.size()));
    }
    tokens.push_back(plan->tokens);
    text.placeholders += tokens.back();
  }
  const size_t videos = media.count(MediumKind::kVideo);
  if (!heard.empty() && heard.size() != videos) {
    return absl::InvalidArgumentError(
        absl::StrCat(videos, " videos with the audio of ", heard.size()));
  }
  for (const IndexedMedium& medium : media) {
    if (medium.kind != MediumKind::kVideo) continue;
    const absl::StatusOr<VideoPlan> plan =
        PlanIndexedVideo(*video, *medium.stream, medium.times);
    if (!plan.ok()) return Annotate(plan.status(), medium.name());
    text.texts.push_back(TextOfVideo(video->rule, *plan, video->merge));
    AppendGrids(*video, *plan, &text.grids);
    text.placeholders += plan->tokens;
    if (heard.empty()) continue;
    text.grids.back().audio_tokens = heard[medium.number];
    text.texts.back().with_audio = OrderAudioInVideo(
        *rows->in_video(),
        {plan->grid_t, plan->grid_h / video->merge, plan->grid_w / video->merge,
         plan->seconds_per_patch, heard[medium.number]});
  }
  for (const uint64_t tokens : others) {
    text.texts.push_back(TextOfRows(rows->kind(), tokens));
  }
  return text;
}

ImagePieces VideoPieces(const StreamText& video, const ImageMarks& marks,
                        bool has_own_id, const v1::AudioFamily::Marks* audio) {
  ImagePieces pieces;
  if (!video.with_audio.empty()) {
    pieces.push_back({0, absl::StrCat(marks.before, audio->before())});
    for (const AudioInVideoRun& run : video.with_audio) {
      pieces.push_back({run.tokens, "", !run.is_audio, run.is_audio});
    }
    pieces.push_back({0, absl::StrCat(audio->after(), marks.after)});
    return pieces;
  }
  std::string text;  // between two runs
  const auto add_text = [&] {
    if (!text.empty()) pieces.push_back({0, std::exchange(text, "")});
  };
  for (uint32_t run = 0; run < video.runs; ++run) {
    if (!video.before.empty()) text += video.before[run];
    text += marks.before;
    add_text();
    pieces.push_back({video.run_tokens, "", has_own_id});
    text += marks.after;
  }
  add_text();
  return pieces;
}

void AppendGrids(const VideoModel& video, const VideoPlan& plan,
                 std::vector<GridThw>* grids) {
  if (video.rule == VideoRule::kQwen3) {
    grids->insert(grids->end(), plan.grid_t,
                  GridThw{1, plan.grid_h, plan.grid_w});
    return;
  }
  if (video.ids_per_second != 0) {
    grids->push_back({plan.grid_t, plan.grid_h, plan.grid_w, 1,
                      video.ids_per_second, plan.seconds_per_patch});
    return;
  }
  // transformers multiplies floats.
  const float interval =
      video.has_seconds
          ? kPositionsPerSecond * static_cast<float>(plan.seconds_per_patch)
          : 1.0f;
  grids->push_back({plan.grid_t, plan.grid_h, plan.grid_w, interval});
}

absl::Status CheckLlavaVideos(const MediaCounts& media, bool is_conversation) {
  const uint64_t images = media[MediumKind::kImage];
  const uint64_t videos = media[MediumKind::kVideo];
  const auto fault = [](const auto&... pieces) {
    return DataFaultError(absl::StrCat(
        pieces...,
        "; LLaVA-Video's training code takes one video a sample, or "
        "images, in a conversation"));
  };
  if (videos == 0) return absl::OkStatus();
  if (videos > 1) return fault(videos, " videos");
  if (images > 0) return fault("a video with ", images, " images");
  if (!is_conversation) return fault("a video in a document");
  return absl::OkStatus();
}

absl::Status AddTimes(absl::string_view times, std::vector<Turn>* turns) {
  size_t first = 0;
  while (first < turns->size() && (*turns)[first].role == Role::kSystem) {
    ++first;
  }
  if (first == turns->size() || (*turns)[first].role != Role::kUser) {
    return DataFaultError(
        "the conversation does not begin with a turn of the user, where "
        "model.video.time_instruction puts the times of a video's frames");
  }
  std::string& text = (*turns)[first].text;
  text = absl::StrCat(
      kVideoMark, "\n", times, "\n",
      absl::StrReplaceAll(text, {{kImageMark, ""}, {kVideoMark, ""}}));
  return absl::OkStatus();
}

absl::StatusOr<MediaOrder> MarkMedia(const MediaCounts& media,
                                     const RowsRule* rows,
                                     absl::Span<std::string* const> texts) {
  std::vector<MediumKind> kinds = {MediumKind::kImage, MediumKind::kVideo};
  if (rows != nullptr) kinds.push_back(rows->kind());
  MediaOrder order;
  for (std::string* text : texts) {
    std::string marked;
    absl::string_view rest = *text;
    while (true) {
      size_t first = rest.npos;
      MediumKind found = MediumKind::kImage;
      for (const MediumKind kind : kinds) {
        const size_t at = rest.find(WordsOf(kind).mark);
        if (at >= first) continue;
        first = at;
        found = kind;
      }
      if (first == rest.npos) break;
      absl::StrAppend(&marked, rest.substr(0, first), kImageMark);
      rest.remove_prefix(first + WordsOf(found).mark.size());
      const bool is_video = found == MediumKind::kImage &&
                            media[MediumKind::kImage] == 0 &&
                            media[MediumKind::kVideo] != 0;
      order.push_back(is_video ? MediumKind::kVideo : found);
    }
    absl::StrAppend(&marked, rest);
    *text = std::move(marked);
  }
  if (order.empty()) {
    for (const MediumKind kind : kinds) {
      order.insert(order.end(), media[kind], kind);
    }
    return order;
  }
  const MediaCounts marks = CountsOf(order);
  if (marks == media) return order;
  std::vector<std::string> found;
  std::vector<std::string> wanted;
  for (const MediumKind kind : kinds) {
    found.push_back(absl::StrCat(marks[kind], " ", WordsOf(kind).mark));
    wanted.push_back(absl::StrCat(media[kind], " ", WordsOf(kind).many));
  }
  return DataFaultError(absl::StrCat(
      "text has ", absl::StrJoin(found, ", "), " marks, the sample has ",
      absl::StrJoin(wanted, ", "), "; each mark stands for one of them"));
}

}  // namespace ballast
