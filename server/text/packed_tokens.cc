#include "server/text/packed_tokens.h"

#include <algorithm>
#include <cstddef>
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

// Replaces each run of placeholders by its entries.
class RunFolder {
 public:
  RunFolder(const std::vector<TextToken>& tokens, const PackedRuns& runs,
            const v1::TokenIds& ids)
      : tokens_(tokens),
        runs_(runs),
        ids_(ids),
        has_ends_(ids.vision_start() >= 0 && ids.vision_end() >= 0) {}

  absl::StatusOr<std::vector<TextToken>> Fold() && {
    folded_.reserve(tokens_.size());
    for (size_t i = 0; i < tokens_.size();) {
      if (tokens_[i].id != ids_.image()) {
        BALLAST_RETURN_IF_ERROR(AddOther(i++));
        continue;
      }
      size_t end = i;
      while (end < tokens_.size() && tokens_[end].id == ids_.image()) ++end;
      if (has_ends_) {
        BALLAST_RETURN_IF_ERROR(AddBetweenEnds(i, end));
        ++end;
      } else {
        BALLAST_RETURN_IF_ERROR(AddRuns(i, end));
      }
      i = end;
    }
    if (next_ != runs_.lengths.size()) {
      return Fault("the tokens hold ", next_,
                   has_ends_ ? " images" : " runs of placeholders",
                   ", the sample has ", runs_.lengths.size());
    }
    if (folded_.empty()) return Fault("no tokens");
    return std::move(folded_);
  }

 private:
  absl::Status AddOther(size_t i) {
    if (has_ends_ && tokens_[i].id == ids_.video()) {
      return Fault("token ", i, " is ", ids_.video(),
                   ", a video's; videos are not supported");
    }
    folded_.push_back(tokens_[i]);
    if (std::find(runs_.marks.begin(), runs_.marks.end(), tokens_[i].id) !=
        runs_.marks.end()) {
      folded_.back().kind = Kind::kImageText;
    }
    return absl::OkStatus();
  }

  // An image's placeholders [first, end), and the token at `end`.
  absl::Status AddBetweenEnds(size_t first, size_t end) {
    if (folded_.empty() || folded_.back().kind == Kind::kImageText ||
        folded_.back().id != ids_.vision_start() || end == tokens_.size() ||
        tokens_[end].id != ids_.vision_end()) {
      return Fault("image tokens ", first, " to ", end - 1,
                   " do not stand between vision start (", ids_.vision_start(),
                   ") and vision end (", ids_.vision_end(), ")");
    }
    if (next_ == runs_.lengths.size()) {
      return Fault("token ", first, " begins image ", next_,
                   " (from 0), and the sample has ", runs_.lengths.size(),
                   " images");
    }
    if (end - first != runs_.lengths[next_]) {
      return Fault("image ", next_, " (from 0) has ", end - first,
                   " image tokens from token ", first,
                   " on, and its size under this model asks for ",
                   runs_.lengths[next_]);
    }
    folded_.back().kind = Kind::kImageText;
    folded_.push_back({static_cast<int32_t>(next_++), Kind::kImage});
    folded_.push_back({ids_.vision_end(), Kind::kImageText});
    return absl::OkStatus();
  }

  absl::Status AddRuns(size_t first, size_t end) {
    for (uint64_t left = end - first; left > 0; ++next_) {
      const uint32_t wanted =
          next_ == runs_.lengths.size() ? 0 : runs_.lengths[next_];
      if (wanted == 0 || wanted > left) {
        return Fault("placeholders ", first, " to ", end - 1, ": ", end - first,
                     " in a row, and the sizes of the sample's images under "
                     "this model ask for ",
                     wanted, " in run ", next_, " (from 0)");
      }
      left -= wanted;
      folded_.push_back({static_cast<int32_t>(next_), Kind::kImage});
    }
    return absl::OkStatus();
  }

  const std::vector<TextToken>& tokens_;
  const PackedRuns& runs_;
  const v1::TokenIds& ids_;
  const bool has_ends_;
  std::vector<TextToken> folded_;
  size_t next_ = 0;  // run
};

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
    absl::string_view bytes, const PackedRuns& runs,
    const v1::TokenIds& token_ids) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<TextToken> tokens,
                           ReadBytes(bytes));
  return RunFolder(tokens, runs, token_ids).Fold();
}

absl::StatusOr<std::vector<TextToken>> ParsePackedJson(
    absl::string_view json, const PackedRuns& runs,
    const v1::TokenIds& token_ids) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<TextToken> tokens, ReadJson(json));
  return RunFolder(tokens, runs, token_ids).Fold();
}

}  // namespace ballast
