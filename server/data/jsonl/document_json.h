#ifndef BALLAST_SERVER_DATA_JSONL_DOCUMENT_JSON_H_
#define BALLAST_SERVER_DATA_JSONL_DOCUMENT_JSON_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <simdjson.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// simdjson's text as Abseil's functions take it.
inline absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

// A document with images at their places.
struct JsonDocument {
  std::string text;  // with a mark `<image>` for each image
  // Their paths, unchecked; nullopt: the document says nothing of images.
  std::optional<std::vector<std::string>> images;
};

// The document that an object without turns is, in one of three forms:
//
//   plain text  {"text": "…"}
//   OBELICS     {"texts": ["…", null, …], "images": [null, PATH, …]}, also
//               OmniCorpus: of each place one is null; nothing is added between
//   MMC4        {"text_list": ["…", …], "image_info": [{"image_name": PATH,
//               "matched_text_index": 0, …}, …]}: each image before its text,
//               in the order of image_info; a space between texts
//
// nullopt: none of them. Errors: a data fault (values of other types, lists of
// other lengths, a text and an image at one place, an index that no text has).
absl::StatusOr<std::optional<JsonDocument>> ReadDocument(
    const simdjson::dom::object& root);

// Adds a place of a document of parallel lists of texts and images, of which
// one is null: the text, or a mark of the image. Errors: a data fault (both).
absl::Status AddPlace(std::optional<absl::string_view> text, bool has_image,
                      std::string* document);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_JSONL_DOCUMENT_JSON_H_
