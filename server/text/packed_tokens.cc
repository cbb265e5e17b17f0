#include "server/text/packed_tokens.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include <simdjson.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

using Kind = TextToken::Kind;
using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;

constexpr int64_t kUnsupervised = -100;

template <typename... Piece>
absl::Status Fault(const Piece&... pieces) {
  return DataFaultError(absl::StrCat(pieces...));
}

// Replaces each image's tokens by one entry.
absl::StatusOr<std::vector<TextToken>> FoldImages(
    std::vector<TextToken> tokens, absl::Span<const uint32_t> image_tokens,
    const v1::TokenIds& ids) {
  size_t images = 0;
  size_t kept = 0;
  for (size_t i = 0; i < tokens.size();) {
    if (tokens[i].id == ids.video()) {
      return Fault("token ", i, " is ", ids.video(),
                   ", a video's; videos are not supported");
    }
    if (tokens[i].id != ids.image()) {
      tokens[kept++] = tokens[i++];
      continue;
    }
    size_t end = i;
    while (end < tokens.size() && tokens[end].id == ids.image()) ++end;
    if (kept == 0 || tokens[kept - 1].kind == Kind::kImage ||
        tokens[kept - 1].id != ids.vision_start() || end == tokens.size() ||
        tokens[end].id != ids.vision_end()) {
      return Fault("image tokens ", i, " to ", end - 1,
                   " do not stand between ", "vision start (",
                   ids.vision_start(), ") and vision end (", ids.vision_end(),
                   ")");
    }
    if (images == image_tokens.size()) {
      return Fault("token ", i, " begins image ", images,
                   " (from 0), and the sample has ", image_tokens.size(),
                   " images");
    }
    if (end - i != image_tokens[images]) {
      return Fault("image ", images, " (from 0) has ", end - i,
                   " image tokens from token ", i,
                   " on, and its size under "
                   "this model asks for ",
                   image_tokens[images]);
    }
    tokens[kept - 1] = {static_cast<int32_t>(images++), Kind::kImage};
    i = end + 1;
  }
  if (images != image_tokens.size()) {
    return Fault("the tokens hold ", images, " images, the sample has ",
                 image_tokens.size());
  }
  tokens.resize(kept);
  if (tokens.empty()) return Fault("no tokens");
  return tokens;
}

// Replaces each run of a family's placeholders by its entries.
absl::StatusOr<std::vector<TextToken>> FoldRuns(
    const std::vector<TextToken>& tokens, const PackedRuns& runs,
    const v1::TokenIds& ids) {
  std::vector<TextToken> folded;
  folded.reserve(tokens.size());
  size_t next = 0;
  for (size_t i = 0; i < tokens.size();) {
    if (tokens[i].id != ids.image()) {
      folded.push_back(tokens[i++]);
      if (std::find(runs.marks.begin(), runs.marks.end(), folded.back().id) !=
          runs.marks.end()) {
        folded.back().kind = Kind::kImageText;
      }
      continue;
    }
    size_t end = i;
    while (end < tokens.size() && tokens[end].id == ids.image()) ++end;
    uint64_t left = end - i;
    while (left > 0) {
      if (next == runs.lengths.size() || runs.lengths[next] > left) {
        return Fault("placeholders ", i, " to ", end - 1, ": ", end - i,
                     " in a row, and the sizes of the sample's images under "
                     "this model ask for ",
                     next == runs.lengths.size() ? 0 : runs.lengths[next],
                     " in run ", next, " (from 0)");
      }
      left -= runs.lengths[next];
      folded.push_back({static_cast<int32_t>(next++), Kind::kImage});
    }
    i = end;
  }
  if (next != runs.lengths.size()) {
    return Fault("the tokens hold ", next,
                 " runs of placeholders, the images "
                 "of the sample take ",
                 runs.lengths.size());
  }
  if (folded.empty()) return Fault("no tokens");
  return folded;
}

absl::StatusOr<array> FindList(element root, const char* key) {
  array list;
  if (root[key].get(list) != SUCCESS) {
    return Fault("`", key, "` is not a list of numbers");
  }
  return list;
}

// Reads a list of numbers, each from `min` to the largest int32.
absl::StatusOr<std::vector<int32_t>> ReadNumbers(array list, int64_t min,
                                                 absl::string_view what) {
  std::vector<int32_t> numbers;
  for (const element value : list) {
    int64_t number;
    if (value.get(number) != SUCCESS || number < min ||
        number > std::numeric_limits<int32_t>::max()) {
      return Fault(what, " ", numbers.size(), " is ",
                   std::string(simdjson::minify(value)).substr(0, 40),
                   "; wanted a whole number from ", min, " to 2^31 - 1");
    }
    numbers.push_back(static_cast<int32_t>(number));
  }
  return numbers;
}

absl::StatusOr<std::vector<TextToken>> ReadBytes(absl::string_view bytes) {
  if (bytes.size() % 4 != 0) {
    return Fault(bytes.size(), " bytes of tokens; wanted a multiple of 4");
  }
  std::vector<TextToken> tokens(bytes.size() / 4);
  for (size_t i = 0; i < tokens.size(); ++i) {
    uint32_t id = 0;
    for (int k = 3; k >= 0; --k) {
      id = id << 8 | static_cast<unsigned char>(bytes[4 * i + k]);
    }
    tokens[i] = {static_cast<int32_t>(id), Kind::kSupervised};
    if (tokens[i].id < 0) {
      return Fault("token ", i, " is ", tokens[i].id,
                   "; wanted 32-bit little-endian ids of at least 0");
    }
  }
  return tokens;
}

absl::StatusOr<std::vector<TextToken>> ReadJson(absl::string_view json) {
  simdjson::dom::parser parser;
  element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root);
      error != SUCCESS) {
    return Fault("tokens are not valid JSON: ", simdjson::error_message(error));
  }
  array list;
  std::vector<int32_t> labels;
  bool has_labels = false;
  if (root.get(list) != SUCCESS) {
    BALLAST_ASSIGN_OR_RETURN(list, FindList(root, "tokens"));
    element given;
    has_labels = root["labels"].get(given) == SUCCESS && !given.is_null();
    if (has_labels) {
      BALLAST_ASSIGN_OR_RETURN(const array labels_list,
                               FindList(root, "labels"));
      BALLAST_ASSIGN_OR_RETURN(
          labels, ReadNumbers(labels_list, kUnsupervised, "label"));
    }
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                           ReadNumbers(list, 0, "token"));
  if (has_labels && labels.size() != ids.size()) {
    return Fault(labels.size(), " labels for ", ids.size(), " tokens");
  }
  std::vector<TextToken> tokens;
  tokens.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool learnt = !has_labels || labels[i] != kUnsupervised;
    if (has_labels && learnt && labels[i] != ids[i]) {
      return Fault("label ", i, " is ", labels[i], ", wanted -100 or ", ids[i],
                   ", the token itself");
    }
    tokens.push_back({ids[i], learnt ? Kind::kSupervised : Kind::kContext});
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::vector<TextToken>> ParsePackedBytes(
    absl::string_view bytes, absl::Span<const uint32_t> image_tokens,
    const v1::TokenIds& token_ids) {
  BALLAST_ASSIGN_OR_RETURN(std::vector<TextToken> tokens, ReadBytes(bytes));
  return FoldImages(std::move(tokens), image_tokens, token_ids);
}

absl::StatusOr<std::vector<TextToken>> ParsePackedJson(
    absl::string_view json, absl::Span<const uint32_t> image_tokens,
    const v1::TokenIds& token_ids) {
  BALLAST_ASSIGN_OR_RETURN(std::vector<TextToken> tokens, ReadJson(json));
  return FoldImages(std::move(tokens), image_tokens, token_ids);
}

absl::StatusOr<std::vector<TextToken>> ParseFamilyBytes(
    absl::string_view bytes, const PackedRuns& runs,
    const v1::TokenIds& token_ids) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<TextToken> tokens,
                           ReadBytes(bytes));
  return FoldRuns(tokens, runs, token_ids);
}

absl::StatusOr<std::vector<TextToken>> ParseFamilyJson(
    absl::string_view json, const PackedRuns& runs,
    const v1::TokenIds& token_ids) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<TextToken> tokens, ReadJson(json));
  return FoldRuns(tokens, runs, token_ids);
}

}  // namespace ballast
