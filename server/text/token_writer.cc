#include "server/text/token_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/corpus/data_fault.h"
#include "server/text/conversation.h"

namespace ballast {
namespace {

using Kind = TextToken::Kind;

}  // namespace

void TokenWriter::AddText(absl::string_view text, Kind kind) {
  if (text.empty()) return;
  absl::StrAppend(&pending_, text);
  if (!stretches_.empty() && stretches_.back().kind == kind) {
    stretches_.back().end = pending_.size();
  } else {
    stretches_.push_back({pending_.size(), kind});
  }
}

void TokenWriter::AddMarkedText(absl::string_view text, Kind kind) {
  const bool images_are_videos =
      image_count_ == 0 && !videos_of_sample_.empty();
  bool first_of_text = true;
  for (absl::string_view of_image : SplitAtImageMarks(text)) {
    if (!first_of_text) images_are_videos ? AddVideo() : AddImage();
    first_of_text = false;
    while (true) {
      const size_t mark = of_image.find(kVideoMark);
      AddText(of_image.substr(0, mark), kind);
      if (mark == of_image.npos) break;
      AddVideo();
      of_image.remove_prefix(mark + kVideoMark.size());
    }
  }
}

void TokenWriter::AddTemplateText(absl::string_view text, Kind kind) {
  const std::pair<absl::string_view, int32_t> specials[] = {
      {"<|im_start|>", token_ids_->im_start()},
      {"<|im_end|>", token_ids_->im_end()},
      {"<|endoftext|>", token_ids_->end_of_text()},
  };
  size_t plain = 0;  // text before this byte is added
  for (size_t i = 0; i < text.size();) {
    const auto* found = std::find_if(
        std::begin(specials), std::end(specials), [&](const auto& special) {
          return absl::StartsWith(text.substr(i), special.first);
        });
    if (found == std::end(specials)) {
      ++i;
      continue;
    }
    AddText(text.substr(plain, i - plain), kind);
    AddSpecial(found->first, found->second, kind);
    i += found->first.size();
    plain = i;
  }
  AddText(text.substr(plain), kind);
}

void TokenWriter::AddEndOfText(Kind kind) {
  AddSpecial("<|endoftext|>", token_ids_->end_of_text(), kind);
}

void TokenWriter::AddSpecial(absl::string_view content, int32_t id, Kind kind) {
  if (tokenizer_->SpecialTokenId(content) == id) {
    // The tokenizer matches it, together with any white space that it takes
    // around it.
    AddText(content, kind);
  } else {
    EncodePending();
    tokens_.push_back({id, kind});
  }
}

void TokenWriter::AddImage() {
  EncodePending();
  tokens_.push_back({images_++, Kind::kImage});
}

void TokenWriter::AddVideo() {
  const size_t video = videos_++;
  // Finish reports the mark that is too many.
  if (video >= videos_of_sample_.size()) return;
  const VideoText& text = videos_of_sample_[video];
  for (uint32_t run = 0; run < text.runs; ++run) {
    if (!text.before.empty()) AddText(text.before[run], Kind::kImageText);
    EncodePending();
    tokens_.push_back(
        {static_cast<int32_t>(image_count_) + video_runs_++, Kind::kImage});
  }
}

TextToken::Kind TokenWriter::KindOf(size_t begin, size_t end,
                                    size_t* at) const {
  // Some tokens cover no byte of their own: parts of a character that
  // normalising produced. They belong to the previous byte.
  end = std::max<size_t>(end, 1);
  begin = std::min(begin, end - 1);
  while (stretches_[*at].end <= begin) ++*at;
  Kind kind = Kind::kContext;
  for (size_t i = *at; i < stretches_.size(); ++i) {
    if (stretches_[i].kind == Kind::kSupervised) return Kind::kSupervised;
    if (stretches_[i].kind == Kind::kImageText) kind = Kind::kImageText;
    if (stretches_[i].end >= end) break;
  }
  return kind;
}

void TokenWriter::EncodePending() {
  if (pending_.empty() || !status_.ok()) return;
  ids_.clear();
  ends_.clear();
  const bool is_mixed = stretches_.size() > 1;
  std::vector<size_t>* ends = is_mixed ? &ends_ : nullptr;
  status_ = tokens_.empty()
                ? tokenizer_->EncodeWithEnds(pending_, &ids_, ends)
                : tokenizer_->EncodeContinued(pending_, &ids_, ends);
  if (!status_.ok()) return;
  size_t at = 0;
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (ids_[i] == token_ids_->image() || ids_[i] == token_ids_->video()) {
      status_ = DataFaultError(absl::StrCat(
          "the text spells out token ", ids_[i],
          ", which stands for a part of an image or a video; the mark of an "
          "image is ",
          kImageMark, ", of a video ", kVideoMark));
      return;
    }
    const Kind kind = is_mixed
                          ? KindOf(i == 0 ? 0 : ends_[i - 1], ends_[i], &at)
                          : stretches_[0].kind;
    tokens_.push_back({ids_[i], kind});
  }
  pending_.clear();
  stretches_.clear();
}

absl::StatusOr<std::vector<TextToken>> TokenWriter::Finish(
    size_t image_count) && {
  EncodePending();
  if (!status_.ok()) return status_;
  if (static_cast<size_t>(images_) != image_count) {
    return DataFaultError(absl::StrCat(
        "text has ", images_, " ", kImageMark, " marks, the sample has ",
        image_count, " images; each mark stands for one image"));
  }
  if (videos_ != videos_of_sample_.size()) {
    return DataFaultError(absl::StrCat(
        "text has ", videos_, " ", kVideoMark, " marks, the sample has ",
        videos_of_sample_.size(), " videos; each mark stands for one video"));
  }
  return std::move(tokens_);
}

}  // namespace ballast
