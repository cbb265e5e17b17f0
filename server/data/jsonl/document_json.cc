#include "server/data/jsonl/document_json.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

constexpr char kMark[] = "<image>";

// A text or null.
absl::StatusOr<std::optional<absl::string_view>> GetText(const element& value,
                                                         absl::string_view list,
                                                         size_t number) {
  std::string_view text;
  if (value.get(text) == SUCCESS) return std::make_optional(View(text));
  if (value.is_null()) return std::optional<absl::string_view>();
  return DataFaultError(absl::StrCat("`", list, "` has at place ", number,
                                     " neither a string nor null"));
}

// Refuses images without places where others have some.
absl::Status CheckNoOthers(const object& root, const char* key) {
  element value;
  array list;
  if (root.at_key(key).get(value) != SUCCESS || value.is_null() ||
      (value.get(list) == SUCCESS && list.size() == 0)) {
    return absl::OkStatus();
  }
  return DataFaultError(absl::StrCat("`", key,
                                     "` beside a document whose images have "
                                     "places; wanted all of them there"));
}

absl::StatusOr<JsonDocument> ReadPlaces(const array& texts,
                                        const std::optional<array>& images) {
  if (images.has_value() && images->size() != texts.size()) {
    return DataFaultError(absl::StrCat(
        "`texts` has ", texts.size(), " places, `images` has ", images->size(),
        "; wanted parallel lists, with null in one of them at each place"));
  }
  JsonDocument document;
  if (images.has_value()) document.images.emplace();
  for (size_t i = 0; i < texts.size(); ++i) {
    BALLAST_ASSIGN_OR_RETURN(
        const std::optional<absl::string_view> text,
        GetText(texts.at(i).value_unsafe(), "texts", i + 1));
    std::optional<absl::string_view> image;
    if (images.has_value()) {
      BALLAST_ASSIGN_OR_RETURN(
          image, GetText(images->at(i).value_unsafe(), "images", i + 1));
    }
    BALLAST_RETURN_IF_ERROR(
        Annotate(AddPlace(text, image.has_value(), &document.text),
                 absl::StrCat("place ", i + 1)));
    if (image.has_value()) document.images->emplace_back(*image);
  }
  return document;
}

absl::StatusOr<JsonDocument> ReadMatched(const array& texts,
                                         const object& root) {
  std::vector<std::vector<std::string>> before(texts.size());
  array infos;
  if (root.at_key("image_info").get(infos) != SUCCESS) {
    return DataFaultError("`text_list` without a list `image_info`");
  }
  size_t number = 0;
  for (const element info : infos) {
    ++number;
    std::string_view name;
    uint64_t index = 0;
    if (info["image_name"].get(name) != SUCCESS ||
        info["matched_text_index"].get(index) != SUCCESS ||
        index >= texts.size()) {
      return DataFaultError(
          absl::StrCat("`image_info` has at place ", number,
                       " no `image_name` and "
                       "`matched_text_index` below ",
                       texts.size(), ", the number of texts in `text_list`"));
    }
    before[index].emplace_back(name);
  }
  JsonDocument document;
  document.images.emplace();
  for (size_t i = 0; i < texts.size(); ++i) {
    BALLAST_ASSIGN_OR_RETURN(
        const std::optional<absl::string_view> text,
        GetText(texts.at(i).value_unsafe(), "text_list", i + 1));
    if (i > 0) document.text += ' ';
    for (std::string& image : before[i]) {
      document.text += kMark;
      document.images->push_back(std::move(image));
    }
    absl::StrAppend(&document.text, text.value_or(""));
  }
  return document;
}

}  // namespace

absl::StatusOr<std::optional<JsonDocument>> ReadDocument(const object& root) {
  array list;
  if (root.at_key("texts").get(list) == SUCCESS) {
    BALLAST_RETURN_IF_ERROR(CheckNoOthers(root, "image"));
    std::optional<array> images;
    if (array found; root.at_key("images").get(found) == SUCCESS) {
      images = found;
    } else {
      BALLAST_RETURN_IF_ERROR(CheckNoOthers(root, "images"));
    }
    return ReadPlaces(list, images);
  }
  if (root.at_key("text_list").get(list) == SUCCESS) {
    BALLAST_RETURN_IF_ERROR(CheckNoOthers(root, "image"));
    BALLAST_RETURN_IF_ERROR(CheckNoOthers(root, "images"));
    return ReadMatched(list, root);
  }
  std::string_view text;
  if (root.at_key("text").get(text) == SUCCESS) {
    return JsonDocument{std::string(text), std::nullopt};
  }
  return std::optional<JsonDocument>();
}

absl::Status AddPlace(std::optional<absl::string_view> text, bool has_image,
                      std::string* document) {
  if (text.has_value() && has_image) {
    return DataFaultError(
        "both a text and an image, so their order is not known; wanted null "
        "for one of them");
  }
  absl::StrAppend(document, has_image ? kMark : text.value_or(""));
  return absl::OkStatus();
}

}  // namespace ballast
