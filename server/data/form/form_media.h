#ifndef BALLAST_SERVER_DATA_FORM_FORM_MEDIA_H_
#define BALLAST_SERVER_DATA_FORM_FORM_MEDIA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <simdjson.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/recipe/recipe.h"

namespace ballast {

// A medium, with the mark that stands for it, if the record says one.
struct FormMedium {
  CookedSample::Video medium;
  std::string mark = "";
};

// Reads media in all their spellings. Thread-compatible.
class FormMedia {
 public:
  // `parts`: how many media and members the record has, before those that it
  // has as text.
  explicit FormMedia(size_t parts) : parts_(parts) {}

  // Adds the media of a value. Errors: a data fault.
  absl::Status AddMedia(absl::string_view kind,
                        const simdjson::dom::element& value,
                        std::vector<FormMedium>* found);

  bool HasBytes() const { return !bytes_.empty(); }
  // The bytes of those that the record has as text.
  std::vector<std::string> TakeBytes() { return std::move(bytes_); }

 private:
  absl::StatusOr<CookedSample::Medium> TextMedium(absl::string_view kind,
                                                  absl::string_view text);

  const size_t parts_;
  std::vector<std::string> bytes_;
  uint64_t media_bytes_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_FORM_MEDIA_H_
