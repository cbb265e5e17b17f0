#include "server/data/form/form_marks.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/data/jsonl/media_root.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// `<ImageHere>`, `<|image_1|>`, `<img>`: a word of images in angle brackets at
// the beginning of `text`; "" if there is none.
std::string MarkLike(absl::string_view text) {
  constexpr size_t kLongest = 32;
  const size_t end = text.substr(0, kLongest).find('>');
  if (end == text.npos) return "";
  const absl::string_view mark = text.substr(0, end + 1);
  const auto is_odd = [](char c) {
    return !absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '|' &&
           c != ' ' && c != '<' && c != '>';
  };
  if (std::any_of(mark.begin(), mark.end(), is_odd)) return "";
  const std::string lower = absl::AsciiStrToLower(mark);
  return absl::StrContains(lower, "image") || absl::StrContains(lower, "img")
             ? std::string(mark)
             : "";
}

}  // namespace

// The media of the marks in a text, in order, and the text with `<image>`
// for each.
absl::StatusOr<absl::string_view> FormMarks::Marked(absl::string_view text) {
  std::string made;
  size_t done = 0;
  for (size_t at = text.find('<'); at != text.npos;
       at = text.find('<', at + 1)) {
    size_t length = 0;
    BALLAST_ASSIGN_OR_RETURN(const absl::string_view medium,
                             TakeMark(text.substr(at), &length));
    if (medium.empty()) {
      if (lookalike_.empty() && !images_.empty()) {
        lookalike_ = MarkLike(text.substr(at));
      }
      continue;
    }
    absl::StrAppend(&made, text.substr(done, at - done), "<", medium, ">");
    done = at + length;
    at = done - 1;
  }
  if (done == 0) return text;
  absl::StrAppend(&made, text.substr(done));
  return Keep(std::move(made));
}

bool FormMarks::MayBeOther(absl::string_view text) const {
  const auto begins = [text](const auto& spellings) {
    return std::any_of(
        spellings.begin(), spellings.end(),
        [text](const std::string& spelling) {
          return absl::StartsWith(
              text, absl::string_view(spelling).substr(0, spelling.find('{')));
        });
  };
  return absl::StartsWith(text, "<video>") ||
         absl::StartsWith(text, "<audio>") || begins(form_.marks().image()) ||
         begins(form_.marks().video()) || begins(form_.marks().audio());
}

int FormMarks::CountOwn(absl::string_view text) const {
  constexpr absl::string_view kImage = "<image>";
  // A mark of the user's own may begin otherwise.
  const auto is_bracket = [](const auto& spellings) {
    return std::all_of(spellings.begin(), spellings.end(),
                       [](const std::string& spelling) {
                         return absl::StartsWith(spelling, "<");
                       });
  };
  if (!is_bracket(form_.marks().image()) ||
      !is_bracket(form_.marks().video()) ||
      !is_bracket(form_.marks().audio()) ||
      std::any_of(images_.begin(), images_.end(), [](const FormMedium& image) {
        return !image.mark.empty();
      })) {
    return -1;
  }
  int marks = 0;
  for (size_t at = text.find('<'); at != text.npos;
       at = text.find('<', at + 1)) {
    const absl::string_view left = text.substr(at);
    if (absl::StartsWith(left, kImage)) {
      ++marks;
    } else if (MayBeOther(left)) {
      return -1;
    }
  }
  return marks;
}

// The medium of a mark at the beginning of `text`; "" if there is none.
absl::StatusOr<absl::string_view> FormMarks::TakeMark(absl::string_view text,
                                                      size_t* length) {
  // What the images are called decides before the form does.
  const FormMedium* longest = nullptr;
  size_t place = 0;
  for (size_t i = 0; i < images_.size(); ++i) {
    const FormMedium& image = images_[i];
    if (image.mark.empty() || !absl::StartsWith(text, image.mark)) continue;
    if (longest == nullptr || image.mark.size() > longest->mark.size()) {
      longest = &image;
      place = i;
    }
  }
  if (longest != nullptr) {
    *length = longest->mark.size();
    places_.push_back(place);
    return "image";
  }
  const std::pair<const char*,
                  const google::protobuf::RepeatedPtrField<std::string>*>
      marks[] = {{"image", &form_.marks().image()},
                 {"video", &form_.marks().video()},
                 {"audio", &form_.marks().audio()}};
  for (const auto& [medium, spellings] : marks) {
    const size_t name = std::string_view(medium).size();
    if (text.size() > name + 1 && text[name + 1] == '>' &&
        absl::StartsWith(text.substr(1), medium)) {
      *length = name + 2;
      ++marks_;
      if (std::string_view(medium) == "image") places_.push_back(kNext);
      return medium;
    }
    for (const std::string& spelling : *spellings) {
      if (absl::StrContains(spelling, "{path}")) {
        *length = TakeNamed(text, spelling);
        if (*length > 0) return medium;
        continue;
      }
      const size_t number_at = spelling.find("{n}");
      if (number_at == spelling.npos) {
        if (!absl::StartsWith(text, spelling)) continue;
        *length = spelling.size();
        ++marks_;
        if (std::string_view(medium) == "image") places_.push_back(kNext);
        return medium;
      }
      const absl::string_view before =
          absl::string_view(spelling).substr(0, number_at);
      const absl::string_view after =
          absl::string_view(spelling).substr(number_at + 3);
      if (!absl::StartsWith(text, before)) continue;
      size_t end = before.size();
      while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
      uint32_t number = 0;
      if (end == before.size() ||
          !absl::SimpleAtoi(text.substr(before.size(), end - before.size()),
                            &number) ||
          !absl::StartsWith(text.substr(end), after)) {
        continue;
      }
      *length = end + after.size();
      ++marks_;
      if (std::string_view(medium) == "image") {
        numbered_ = true;
        places_.push_back(number);
      }
      return medium;
    }
  }
  return "";
}

// An image that the text names in its mark, `<img>{path}</img>`; the mark's
// length, or 0.
size_t FormMarks::TakeNamed(absl::string_view text,
                            absl::string_view spelling) {
  const std::pair<absl::string_view, absl::string_view> around =
      absl::StrSplit(spelling, absl::MaxSplits("{path}", 1));
  if (!absl::ConsumePrefix(&text, around.first)) return 0;
  const absl::string_view name = text.substr(0, text.find('<'));
  if (!NamesMedia(name) ||
      !absl::StartsWith(text.substr(name.size()), around.second)) {
    return 0;
  }
  FormMedium image;
  image.medium.parts.push_back(std::string(name));
  AddOwnImage(std::move(image));
  ++marks_;
  return around.first.size() + name.size() + around.second.size();
}

// Puts the images into the order of their marks.
absl::StatusOr<std::vector<CookedSample::Medium>> FormMarks::OrderImages()
    const {
  if (!images_.empty() && !HasPlaces() && !lookalike_.empty()) {
    return DataFaultError(absl::StrCat(
        "the texts have no mark for ", images_.size(), " images, and `",
        Printable(lookalike_),
        "`, which would be learnt as text; write `form.marks.image: \"",
        Printable(lookalike_),
        "\"` into the source, or take a recipe if it stands for none"));
  }
  const bool by_mark =
      std::any_of(images_.begin(), images_.end(),
                  [](const FormMedium& image) { return !image.mark.empty(); });
  std::vector<CookedSample::Medium> images;
  const auto first = [](const FormMedium& image) {
    return image.medium.parts[0];
  };
  if (places_.empty() || (!by_mark && !numbered_)) {
    for (const FormMedium& image : images_) images.push_back(first(image));
    return images;
  }
  size_t base = 1;
  for (const size_t place : places_) {
    if (place == kNext) {
      return DataFaultError(
          "marks of images with and without a number or a name, so their "
          "order is not known; wanted all of one kind");
    }
    if (by_mark || place == 0) base = 0;
  }
  std::set<size_t> taken;
  for (const size_t place : places_) {
    if (place < base || place - base >= images_.size()) {
      return DataFaultError(absl::StrCat("a mark of image ", place, ", of ",
                                         images_.size(), " images"));
    }
    taken.insert(place - base);
    images.push_back(first(images_[place - base]));
  }
  if (taken.size() == images_.size()) return images;
  return DataFaultError(absl::StrCat("the texts have marks of ", taken.size(),
                                     " of ", images_.size(),
                                     " images; wanted a mark for each"));
}

}  // namespace ballast
