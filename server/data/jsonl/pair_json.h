#ifndef BALLAST_SERVER_DATA_JSONL_PAIR_JSON_H_
#define BALLAST_SERVER_DATA_JSONL_PAIR_JSON_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Its header takes a second to read.
namespace simdjson::dom {
class object;
}

namespace ballast {

// A preference pair in JSON: two answers to one prompt, as two conversations
// that begin alike. All functions are pure.

// The conversations of a pair, as JSON of one line each.
struct PairJson {
  std::string chosen;    // a list of turns
  std::string rejected;  // likewise
  std::string beside;    // ",KEY:VALUE" of each of the record's other keys
};

// The pair that an object is, in one of these forms; nullopt: none of their
// keys for answers says anything.
//
//   {"prompt": P, "chosen": C, "rejected": R}, also with `messages`,
//     `conversations` or `conversation` for `prompt`. An answer is a text, a
//     turn or a list of turns, a prompt likewise. Answers that repeat the
//     prompt are taken as without it.
//   {"chosen": C, "rejected": R}: the prompt is all turns that both begin with.
//   {"messages": M, "rejected_response": R}, also `rejected` or
//     `rejected_messages`: M is the chosen conversation. R is an answer instead
//     of its last turn, or a whole conversation.
//
// A turn has `role` or `from`. A text is the turn of a user or an assistant.
// Answers in the prompt get `weight: 0`. If `images` is above 0 and the prompt
// has no mark or part of an image, as many marks go before its first turn of
// a user, as TRL puts them. Errors: a data fault (half a pair; keys that say
// different things; no prompt, no answer, or the same one twice; another
// shape).
absl::StatusOr<std::optional<PairJson>> ReadPair(
    const simdjson::dom::object& root, size_t images);

// Replaces `text`, the JSON of an object, by the text of kPair (RawSample), if
// it is a pair; returns whether it was one. Errors: as ReadPair; a data fault
// (a pair that is not UTF-8).
absl::StatusOr<bool> SplitPair(size_t images, std::string* text);

// A text of kPair as the two conversations, each an object with `messages` and
// the other keys.
struct PairTexts {
  std::string chosen;
  std::string rejected;
};
PairTexts GetPairTexts(absl::string_view text);

// The same as one object, with `rejected_messages`, which SplitPair makes it
// again of.
std::string GetPairRecord(absl::string_view text);

// A data fault: a preference pair in a source without `pairs: true`. `place` is
// "key" or "column", `name` its name.
absl::Status PairFault(absl::string_view place, absl::string_view name);

// A data fault: a source has `pairs: true`, and a record is not one.
absl::Status NoPairFault();

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_JSONL_PAIR_JSON_H_
