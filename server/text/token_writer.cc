#include "server/text/token_writer.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"
#include "server/text/conversation.h"

namespace ballast {
namespace {

using Kind = TextToken::Kind;

}  // namespace

TokenWriter::TokenWriter(const Tokenizer* tokenizer,
                         const v1::TokenIds* token_ids, const ImageMarks* marks)
    : tokenizer_(tokenizer),
      token_ids_(token_ids),
      template_names_{{"<|im_start|>", token_ids->im_start()},
                      {"<|im_end|>", token_ids->im_end()},
                      {"<|endoftext|>", token_ids->end_of_text()}},
      mark_names_{{marks->before, token_ids->vision_start()},
                  {marks->after, token_ids->vision_end()}} {}

void TokenWriter::AddText(absl::string_view text, Kind kind) {
  if (text.empty()) return;
  if (record_ != nullptr) absl::StrAppend(record_, text);
  absl::StrAppend(&pending_, text);
  if (!stretches_.empty() && stretches_.back().kind == kind &&
      stretches_.back().turn == turn_) {
    stretches_.back().end = pending_.size();
  } else {
    stretches_.push_back({pending_.size(), kind, turn_});
  }
}

void TokenWriter::AddTemplateText(absl::string_view text, Kind kind) {
  AddNamed(text, template_names_, /*as_text=*/true, kind);
}

void TokenWriter::AddNamed(absl::string_view text,
                           absl::Span<const Named> names, bool as_text,
                           Kind kind) {
  size_t plain = 0;  // text before this byte is added
  for (size_t i = 0; i < text.size();) {
    const auto found =
        std::find_if(names.begin(), names.end(), [&](const Named& name) {
          return name.id >= 0 && !name.text.empty() &&
                 absl::StartsWith(text.substr(i), name.text);
        });
    if (found == names.end()) {
      ++i;
      continue;
    }
    AddText(text.substr(plain, i - plain), kind);
    if (as_text) {
      AddSpecial(found->text, found->id, kind);
    } else {
      EncodePending();
      AddToken({found->id, kind, turn_});
    }
    i += found->text.size();
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
    if (record_ != nullptr) absl::StrAppend(record_, content);
    EncodePending();
    AddToken({id, kind, turn_});
  }
}

void TokenWriter::AddToken(const TextToken& token) {
  tokens_.push_back(token);
  begins_ = false;
}

void TokenWriter::Begin() {
  EncodePending();
  begins_ = true;
}

void TokenWriter::AddImage(const ImagePieces& pieces) {
  std::string* const record = std::exchange(record_, nullptr);
  if (record != nullptr) absl::StrAppend(record, kImageMark);
  const absl::Cleanup restore = [&] { record_ = record; };
  for (const ImageTextPiece& piece : pieces) {
    if (piece.placeholders == 0) {
      AddNamed(piece.text, mark_names_, /*as_text=*/false, Kind::kImageText);
      continue;
    }
    EncodePending();
    AddToken({static_cast<int32_t>(runs_.size()), Kind::kImage, turn_});
    runs_.push_back(static_cast<uint32_t>(piece.placeholders));
    kinds_.push_back(piece.is_audio ? 2 : piece.is_video ? 1 : 0);
  }
}

const TokenWriter::Stretch& TokenWriter::GetStretch(size_t begin, size_t end,
                                                    size_t* at) const {
  // Some tokens cover no byte of their own: parts of a character that
  // normalising produced. They belong to the previous byte.
  end = std::max<size_t>(end, 1);
  begin = std::min(begin, end - 1);
  while (stretches_[*at].end <= begin) ++*at;
  const Stretch* found = &stretches_[*at];
  for (size_t i = *at; i < stretches_.size(); ++i) {
    const Stretch& stretch = stretches_[i];
    if (stretch.kind == Kind::kSupervised || stretch.kind == Kind::kEnd) {
      return stretch;
    }
    if (stretch.kind == Kind::kImageText && found->kind != Kind::kImageText) {
      found = &stretch;
    }
    if (stretch.end >= end) break;
  }
  return *found;
}

void TokenWriter::EncodePending() {
  if (pending_.empty() || !status_.ok()) return;
  ids_.clear();
  ends_.clear();
  const bool is_mixed = stretches_.size() > 1;
  std::vector<size_t>* ends = is_mixed ? &ends_ : nullptr;
  status_ = begins_ ? tokenizer_->EncodeWithEnds(pending_, &ids_, ends)
                    : tokenizer_->EncodeContinued(pending_, &ids_, ends);
  if (!status_.ok()) return;
  begins_ = begins_ && ids_.empty();
  size_t at = 0;
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (ids_[i] == token_ids_->image() || ids_[i] == token_ids_->video()) {
      status_ = DataFaultError(absl::StrCat(
          "the text spells out token ", ids_[i],
          ", which is a token of an image or a video; the mark of an "
          "image is ",
          kImageMark, ", of a video ", kVideoMark));
      return;
    }
    if (token_ids_->has_audio() && ids_[i] == token_ids_->audio()) {
      status_ = DataFaultError(absl::StrCat(
          "the text spells out token ", ids_[i],
          ", which is a token of a clip; the mark of one is ", kAudioMark));
      return;
    }
    const Stretch& stretch =
        is_mixed ? GetStretch(i == 0 ? 0 : ends_[i - 1], ends_[i], &at)
                 : stretches_[0];
    // A text that is learnt as an end is one token, or its first one is.
    const bool goes_on = stretch.kind == Kind::kEnd && !tokens_.empty() &&
                         tokens_.back().kind == Kind::kEnd;
    tokens_.push_back(
        {ids_[i], goes_on ? Kind::kContext : stretch.kind, stretch.turn});
  }
  pending_.clear();
  stretches_.clear();
}

absl::StatusOr<TextTokens> TokenWriter::Finish() && {
  EncodePending();
  BALLAST_RETURN_IF_ERROR(status_);
  TextTokens text;
  text.tokens = std::move(tokens_);
  // Images come first among the runs.
  std::vector<int32_t> numbers(runs_.size());
  for (const uint8_t kind : {0, 1, 2}) {
    if (kind == 1) text.first_video = text.runs.size();
    if (kind == 2) text.first_audio = text.runs.size();
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (kinds_[i] != kind) continue;
      numbers[i] = static_cast<int32_t>(text.runs.size());
      text.runs.push_back(runs_[i]);
    }
  }
  for (TextToken& token : text.tokens) {
    if (token.kind == Kind::kImage) token.id = numbers[token.id];
  }
  return text;
}

}  // namespace ballast
