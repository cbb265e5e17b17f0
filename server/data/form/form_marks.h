#ifndef BALLAST_SERVER_DATA_FORM_FORM_MARKS_H_
#define BALLAST_SERVER_DATA_FORM_FORM_MARKS_H_

#include <cstddef>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/data/form/form_media.h"
#include "server/recipe/recipe.h"

namespace ballast {

// The images of a sample and the marks in its texts that stand for them.
// Thread-compatible.
class FormMarks {
 public:
  // `form` must outlive it.
  explicit FormMarks(const v1::Source::Form* form) : form_(*form) {}

  std::vector<FormMedium>& images() { return images_; }
  const std::vector<FormMedium>& images() const { return images_; }

  // Keeps a text until the turns are written.
  absl::string_view Keep(std::string text) {
    texts_.push_back(std::move(text));
    return texts_.back();
  }

  // The media of the marks in a text, in order, and the text with `<image>`
  // for each. It lives as long as this and `text`. Errors: a data fault.
  absl::StatusOr<absl::string_view> Marked(absl::string_view text);

  // How many marks `<image>` a text has; -1 if it may have any other.
  int CountOwn(absl::string_view text) const;

  // A text between angle brackets that looks like a mark of a medium and is
  // none; "".
  const std::string& lookalike() const { return lookalike_; }

  // A part of a turn that is an image, and how many images were before it.
  void AddPart() { ++marks_; }
  void AddNextPlace() { places_.push_back(kNext); }
  size_t places() const { return places_.size(); }
  // Whether the texts or parts said where a medium is.
  bool HasPlaces() const { return marks_ > 0 || !places_.empty(); }

  // Images that parts of the turns hold, or that their texts name.
  void AddOwnImage(FormMedium image) {
    own_images_.push_back(std::move(image));
  }
  bool HasOwnImages() const { return !own_images_.empty(); }
  // They take the place of those beside the turns.
  void TakeOwnImages() {
    images_ = std::move(own_images_);
    places_.clear();
    numbered_ = false;
  }

  // The images in the order of their marks. Errors: a data fault.
  absl::StatusOr<std::vector<CookedSample::Medium>> OrderImages() const;

 private:
  static constexpr size_t kNext = static_cast<size_t>(-1);

  absl::StatusOr<absl::string_view> TakeMark(absl::string_view text,
                                             size_t* length);

  size_t TakeNamed(absl::string_view text, absl::string_view spelling);

  bool MayBeOther(absl::string_view text) const;

  const v1::Source::Form& form_;
  std::vector<FormMedium> images_, own_images_;
  std::list<std::string> texts_;
  size_t marks_ = 0;
  // The image of each mark: a number, or the next one.
  std::vector<size_t> places_;
  bool numbered_ = false;
  std::string lookalike_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_FORM_MARKS_H_
