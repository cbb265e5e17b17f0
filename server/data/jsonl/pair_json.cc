#include "server/data/jsonl/pair_json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <simdjson.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/data/jsonl/document_json.h"
#include "server/recipe/turns_json.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

constexpr absl::string_view kImageMark = "<image>";
constexpr absl::string_view kTurnKeys[] = {"messages", "conversations",
                                           "conversation"};
constexpr absl::string_view kRejectedKeys[] = {"rejected", "rejected_response",
                                               "rejected_messages"};

std::string Quoted(absl::string_view text) {
  std::string json;
  AppendJsonText(text, &json);
  return json;
}

// ",KEY:VALUE".
std::string Entry(absl::string_view key, const element& value) {
  return absl::StrCat(",", Quoted(key), ":", simdjson::minify(value));
}

// A turn. Two with the same keys and values are equal, whatever their order of
// role and content.
struct Turn {
  std::string role;
  bool is_from = false;    // its keys are `from` and `value`
  std::string content;     // JSON; empty: it has none
  std::string rest;        // Entry of the other keys, without `weights`
  std::string weights;     // likewise `weight`, `loss` and `train`
  bool is_marked = false;  // has a mark or a part of an image

  bool is_answer() const {
    return role == "assistant" || role == "gpt" || role == "function_call";
  }
  bool is_user() const { return role == "user" || role == "human"; }

  bool operator==(const Turn& other) const {
    return role == other.role && content == other.content &&
           rest == other.rest && weights == other.weights;
  }

  std::string Json(bool is_prompt) const {
    return absl::StrCat(is_from ? "{\"from\":" : "{\"role\":", Quoted(role),
                        content.empty() ? ""
                        : is_from       ? ",\"value\":"
                                        : ",\"content\":",
                        content, rest,
                        is_prompt && is_answer() ? ",\"weight\":0" : weights,
                        "}");
  }
};

using Turns = std::vector<Turn>;

bool IsMarked(const element& content) {
  std::string_view text;
  if (content.get(text) == SUCCESS) {
    return absl::StrContains(View(text), kImageMark);
  }
  array parts;
  if (content.get(parts) != SUCCESS) return false;
  for (const element part : parts) {
    std::string_view type;
    if (part["type"].get(type) != SUCCESS) continue;
    if (type == "image" || type == "image_url") return true;
    if (part["text"].get(text) == SUCCESS &&
        absl::StrContains(View(text), kImageMark)) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<Turn> ReadTurn(const object& map) {
  Turn turn;
  std::string_view role;
  turn.is_from = map.at_key("role").get(role) != SUCCESS;
  if (turn.is_from && map.at_key("from").get(role) != SUCCESS) {
    return DataFaultError("a turn without `role` or `from`");
  }
  turn.role = std::string(role);
  for (const auto& [key, value] : map) {
    if (key == (turn.is_from ? "from" : "role")) continue;
    if (key == (turn.is_from ? "value" : "content")) {
      turn.content = simdjson::minify(value);
      turn.is_marked = IsMarked(value);
    } else if (key == "weight" || key == "loss" || key == "train") {
      turn.weights += Entry(View(key), value);
    } else {
      turn.rest += Entry(View(key), value);
    }
  }
  return turn;
}

absl::StatusOr<Turns> ReadTurnList(const array& list) {
  Turns turns;
  for (const element item : list) {
    object map;
    if (item.get(map) != SUCCESS) {
      return DataFaultError("a list of others than turns");
    }
    BALLAST_ASSIGN_OR_RETURN(Turn turn, ReadTurn(map));
    turns.push_back(std::move(turn));
  }
  return turns;
}

// The turns of a prompt or an answer: a list, one turn, or a text, of which a
// user or an assistant says it, or which is the JSON of a list of turns.
absl::StatusOr<Turns> ReadTurnsOrText(const element& value, bool is_answer) {
  array list;
  if (value.get(list) == SUCCESS) return ReadTurnList(list);
  object map;
  if (value.get(map) == SUCCESS) {
    BALLAST_ASSIGN_OR_RETURN(Turn turn, ReadTurn(map));
    return Turns{std::move(turn)};
  }
  std::string_view text;
  if (value.get(text) != SUCCESS) {
    return DataFaultError("neither a text nor turns");
  }
  simdjson::dom::parser parser;
  if (absl::StartsWith(View(text), "[") &&
      parser.parse(text.data(), text.size()).get(list) == SUCCESS) {
    absl::StatusOr<Turns> turns = ReadTurnList(list);
    if (turns.ok() && !turns->empty()) return turns;
  }
  Turn turn;
  turn.role = is_answer ? "assistant" : "user";
  turn.content = simdjson::minify(value);
  turn.is_marked = IsMarked(value);
  return Turns{std::move(turn)};
}

// A value that is a text, a list or an object, and not empty. Others, such as a
// flag, are no answer.
bool SaysSomething(const element& value) {
  std::string_view text;
  array list;
  object map;
  return (value.get(text) == SUCCESS && !text.empty()) ||
         (value.get(list) == SUCCESS && list.size() > 0) ||
         (value.get(map) == SUCCESS && map.size() > 0);
}

// What a pair may be made of; a key that says nothing has no turns.
struct Keys {
  absl::string_view prompt_key, rejected_key;
  Turns prompt, chosen, rejected;
  bool prompt_is_text = false;  // of the key `prompt`
  std::string beside;
};

bool BeginsWith(const Turns& turns, const Turns& beginning) {
  return turns.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), turns.begin());
}

absl::Status AddPrompt(absl::string_view key, Turns turns, Keys* keys) {
  // Some sets repeat the chosen conversation under `messages`.
  if (turns.empty() || turns == keys->chosen) return absl::OkStatus();
  if (!keys->prompt.empty()) {
    return DataFaultError(absl::StrCat("`", keys->prompt_key, "` and `", key,
                                       "` may both be the prompt of the pair; "
                                       "wanted one of the two"));
  }
  keys->prompt_key = key;
  keys->prompt = std::move(turns);
  return absl::OkStatus();
}

absl::StatusOr<Turns> ReadKey(absl::string_view key, const element& value,
                              bool is_answer) {
  absl::StatusOr<Turns> turns = ReadTurnsOrText(value, is_answer);
  if (turns.ok()) return turns;
  return Annotate(turns.status(), absl::StrCat("key `", key, "` of a pair"));
}

absl::StatusOr<std::optional<Keys>> ReadKeys(const object& root) {
  Keys keys;
  element value;
  const auto says = [&](absl::string_view key) {
    return root.at_key(std::string_view(key.data(), key.size())).get(value) ==
               SUCCESS &&
           SaysSomething(value);
  };
  if (says("chosen")) {
    BALLAST_ASSIGN_OR_RETURN(keys.chosen, ReadKey("chosen", value, true));
  }
  for (const absl::string_view key : kRejectedKeys) {
    if (!says(key)) continue;
    if (!keys.rejected.empty()) {
      return DataFaultError(absl::StrCat("`", keys.rejected_key, "` and `", key,
                                         "`; wanted one rejected answer"));
    }
    keys.rejected_key = key;
    BALLAST_ASSIGN_OR_RETURN(keys.rejected, ReadKey(key, value, true));
  }
  if (keys.chosen.empty() && keys.rejected.empty()) {
    return std::optional<Keys>();
  }
  if (says("prompt")) {
    BALLAST_ASSIGN_OR_RETURN(Turns turns, ReadKey("prompt", value, false));
    keys.prompt_is_text = value.is_string();
    BALLAST_RETURN_IF_ERROR(AddPrompt("prompt", std::move(turns), &keys));
  }
  for (const absl::string_view key : kTurnKeys) {
    if (!says(key)) continue;
    BALLAST_ASSIGN_OR_RETURN(Turns turns, ReadKey(key, value, false));
    BALLAST_RETURN_IF_ERROR(AddPrompt(key, std::move(turns), &keys));
  }
  for (const auto& [key, other] : root) {
    const auto is_one_of = [&key =
                                key](absl::Span<const absl::string_view> of) {
      return std::find(of.begin(), of.end(), View(key)) != of.end();
    };
    if (key == "prompt" || key == "chosen" || is_one_of(kRejectedKeys) ||
        is_one_of(kTurnKeys)) {
      continue;
    }
    keys.beside += Entry(View(key), other);
  }
  return std::optional<Keys>(std::move(keys));
}

// The two conversations, and the turns of them that are the prompt.
struct Conversations {
  Turns chosen, rejected;
  size_t prompt = 0;
};

size_t CountShared(const Turns& one, const Turns& other) {
  size_t shared = 0;
  while (shared < std::min(one.size(), other.size()) &&
         one[shared] == other[shared]) {
    ++shared;
  }
  return shared;
}

Turns Joined(Turns first, const Turns& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

// Of two answers, or conversations, and perhaps a prompt.
absl::StatusOr<Conversations> JoinAnswers(Keys keys) {
  const size_t shared = CountShared(keys.chosen, keys.rejected);
  const bool have_prompt = shared > 0 && !keys.chosen[0].is_answer();
  bool repeats = BeginsWith(keys.chosen, keys.prompt) &&
                 BeginsWith(keys.rejected, keys.prompt);
  if (have_prompt && keys.prompt_is_text) {
    repeats = std::any_of(keys.chosen.begin(), keys.chosen.begin() + shared,
                          [&](const Turn& turn) {
                            return turn.is_user() &&
                                   turn.content == keys.prompt[0].content;
                          });
    if (!repeats) {
      return DataFaultError(
          "`prompt` is another text than the turns with which `chosen` and "
          "`rejected` begin; wanted answers alone, or that prompt in both");
    }
  }
  if (keys.prompt.empty() || repeats) {
    if (have_prompt) {
      return Conversations{std::move(keys.chosen), std::move(keys.rejected),
                           shared};
    }
    return DataFaultError(
        "`chosen` and `rejected` of a pair do not begin with the same turn of "
        "another than the assistant, and there is no `prompt`");
  }
  const size_t prompt = keys.prompt.size();
  return Conversations{Joined(keys.prompt, keys.chosen),
                       Joined(keys.prompt, keys.rejected), prompt};
}

// Of a conversation, whose last turn is the chosen answer, and a rejected
// answer or conversation.
absl::StatusOr<Conversations> ReplaceAnswer(Keys keys) {
  if (keys.prompt.empty() || !keys.prompt.back().is_answer()) {
    return DataFaultError(absl::StrCat(
        "`", keys.rejected_key,
        "` without `chosen`, and without `messages` that end with the chosen "
        "answer of an assistant: half a preference pair"));
  }
  Conversations both;
  both.chosen = std::move(keys.prompt);
  if (keys.rejected[0].is_answer() && !both.chosen[0].is_answer()) {
    both.rejected.assign(both.chosen.begin(), both.chosen.end() - 1);
    const bool is_from = both.chosen.back().is_from;
    if (is_from && keys.rejected[0].role == "assistant" &&
        !keys.rejected[0].is_from) {
      keys.rejected[0].role = "gpt";
      keys.rejected[0].is_from = true;
    }
  }
  both.rejected = Joined(std::move(both.rejected), keys.rejected);
  both.prompt = CountShared(both.chosen, both.rejected);
  return both;
}

absl::Status CheckAnswers(const Conversations& both) {
  if (both.prompt == 0) {
    return DataFaultError(
        "the chosen and the rejected conversation of a pair begin with "
        "different turns; wanted the same prompt in both");
  }
  const auto answers = [&](const Turns& turns) {
    return absl::MakeConstSpan(turns).subspan(both.prompt);
  };
  const auto has_answer = [](absl::Span<const Turn> turns) {
    return std::any_of(turns.begin(), turns.end(),
                       [](const Turn& turn) { return turn.is_answer(); });
  };
  if (answers(both.chosen) == answers(both.rejected)) {
    return DataFaultError(
        "the chosen and the rejected answer of a pair are the same: neither is "
        "preferred");
  }
  if (!has_answer(answers(both.chosen)) ||
      !has_answer(answers(both.rejected))) {
    return DataFaultError(
        "the chosen or the rejected conversation of a pair has no turn of an "
        "assistant after the prompt");
  }
  for (const Turns* turns : {&both.chosen, &both.rejected}) {
    for (const Turn& turn : answers(*turns)) {
      if (!turn.is_marked) continue;
      return DataFaultError(
          "an image in an answer of a pair: both answers see the images of the "
          "prompt, and no others");
    }
  }
  return absl::OkStatus();
}

// Marks `images` images before the first turn of a user, unless the prompt has
// a mark.
void AddMarks(size_t images, size_t prompt, Turns* turns) {
  const auto end = turns->begin() + prompt;
  if (images == 0 || std::any_of(turns->begin(), end, [](const Turn& turn) {
        return turn.is_marked;
      })) {
    return;
  }
  auto turn = std::find_if(turns->begin(), end,
                           [](const Turn& turn) { return turn.is_user(); });
  if (turn == end) turn = turns->begin();
  std::string marks;
  for (size_t i = 0; i < images; ++i) absl::StrAppend(&marks, kImageMark);
  // Content is a text, `"…"`, or a list of parts, `[…]`.
  const size_t begin = turn->content.empty() ? 0 : 1;
  if (absl::StartsWith(turn->content, "[")) {
    marks = absl::StrCat("{\"type\":\"text\",\"text\":\"", marks, "\"}",
                         turn->content == "[]" ? "" : ",");
  } else if (begin == 0) {
    marks = Quoted(marks);
  }
  turn->content.insert(begin, marks);
}

std::string ListJson(const Turns& turns, size_t prompt) {
  std::string json = "[";
  for (size_t i = 0; i < turns.size(); ++i) {
    absl::StrAppend(&json, i == 0 ? "" : ",", turns[i].Json(i < prompt));
  }
  return json + "]";
}

}  // namespace

absl::StatusOr<std::optional<PairJson>> ReadPair(const object& root,
                                                 size_t images) {
  BALLAST_ASSIGN_OR_RETURN(std::optional<Keys> keys, ReadKeys(root));
  if (!keys.has_value()) return std::optional<PairJson>();
  if (keys->rejected.empty()) {
    return DataFaultError(
        "`chosen` without `rejected`: half a preference pair");
  }
  PairJson pair;
  pair.beside = keys->beside;
  const bool has_chosen = !keys->chosen.empty();
  BALLAST_ASSIGN_OR_RETURN(Conversations both,
                           has_chosen ? JoinAnswers(*std::move(keys))
                                      : ReplaceAnswer(*std::move(keys)));
  BALLAST_RETURN_IF_ERROR(CheckAnswers(both));
  AddMarks(images, both.prompt, &both.chosen);
  AddMarks(images, both.prompt, &both.rejected);
  pair.chosen = ListJson(both.chosen, both.prompt);
  pair.rejected = ListJson(both.rejected, both.prompt);
  return std::optional<PairJson>(std::move(pair));
}

absl::StatusOr<bool> SplitPair(size_t images, std::string* text) {
  // Most texts are none, and are not parsed for it. JSON may spell the letters
  // of a key as \u0061 to \u007A.
  if (!absl::StrContains(*text, "\"chosen\"") &&
      !absl::StrContains(*text, "\"rejected") &&
      !absl::StrContains(*text, "\\u006") &&
      !absl::StrContains(*text, "\\u007")) {
    return false;
  }
  simdjson::dom::parser parser;
  object root;
  const auto error = parser.parse(text->data(), text->size()).get(root);
  if (error == simdjson::UTF8_ERROR) {
    return DataFaultError(
        absl::StrCat(CheckUtf8(*text).message(),
                     ", in a preference pair, which is read in UTF-8 alone"));
  }
  // The reader of the text reports its faults.
  if (error != SUCCESS) return false;
  BALLAST_ASSIGN_OR_RETURN(const std::optional<PairJson> pair,
                           ReadPair(root, images));
  if (!pair.has_value()) return false;
  *text = absl::StrCat(pair->chosen, "\n", pair->rejected, "\n", pair->beside);
  return true;
}

PairTexts GetPairTexts(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const auto conversation = [&](size_t turns) {
    return lines.size() < 3
               ? std::string()
               : absl::StrCat("{\"messages\":", lines[turns], lines[2], "}");
  };
  return {conversation(0), conversation(1)};
}

std::string GetPairRecord(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.size() < 3) return std::string(text);
  return absl::StrCat("{\"messages\":", lines[0],
                      ",\"rejected_messages\":", lines[1], lines[2], "}");
}

absl::Status PairFault(absl::string_view place, absl::string_view name) {
  return DataFaultError(absl::StrCat(
      place, " `", name,
      "` makes this a preference pair, of which a trainer that learns every "
      "label would learn the rejected answer, too; set `pairs: true` for the "
      "source if the trainer takes pairs, name a recipe (sources[].recipe) "
      "that gives the answer to be learnt, or remove the ",
      place));
}

absl::Status NoPairFault() {
  return DataFaultError(
      "no preference pair, and the source has `pairs: true`; wanted `chosen` "
      "and `rejected`, or `messages` and `rejected_response` or "
      "`rejected_messages`");
}

}  // namespace ballast
