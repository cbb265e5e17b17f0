#ifndef BALLAST_SERVER_DATA_FORM_FORM_RECORD_H_
#define BALLAST_SERVER_DATA_FORM_FORM_RECORD_H_

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <simdjson.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/data/form/form_path.h"
#include "server/data/form/form_sample.h"
#include "server/data/form/unread.h"
#include "server/recipe/recipe.h"

namespace ballast {

// The name of a medium in the file, whose value is its number.
inline constexpr char kFormMedia[] = "$ballast.media";

// The members of a tar's sample as one object of JSON: texts, JSON, and the
// numbers of the others.
std::string MembersJson(const RecipeRecord& record);

// What a value is, for messages: "a list".
std::string KindOf(const simdjson::dom::element& value);
// Whether it is null, or a text or list without anything in it.
bool IsEmptyValue(const simdjson::dom::element& value);
// Whether a list is one of turns: of structs with who says it, by `role_key` or
// else by one of the usual keys.
bool IsTurns(const simdjson::dom::element& value, const std::string& role_key);

// A record as a tree of names and values, and which of them the form has read.
// Thread-compatible; a thread has one at a time. All arguments must outlive it.
class FormRecord {
 public:
  // `fields`: names of numbers that travel with the sample.
  FormRecord(const v1::Source::Form* form,
             const std::vector<std::string>* fields, const RecipeRecord* record)
      : form_(*form), fields_(*fields), record_(*record) {}

  // Must come first. Errors: a data fault.
  absl::Status Parse();

  const simdjson::dom::object& root() const { return root_; }

  // The JSON that was parsed; a reader has no more use for it.
  std::string TakeJson() { return std::move(json_); }

  // Whether the record may have a key of this name; false is sure.
  bool MayHave(absl::string_view name) const {
    return (KeyBit(name) & keys_) != 0;
  }

  // The values of the first path of `key` with some that `takes` likes. Empty
  // values count as none.
  template <typename Takes>
  std::vector<simdjson::dom::element> Find(const char* name,
                                           const std::vector<FormPaths>& keys,
                                           size_t entry, Takes takes) {
    const FormPaths& key = keys[entry];
    for (const FormPath& path : key.paths) {
      if ((path.keys & keys_) == 0) continue;
      std::string at;
      std::vector<simdjson::dom::element> values = Values(path, &at);
      std::erase_if(values, IsEmptyValue);
      if (values.empty() || !std::all_of(values.begin(), values.end(), takes)) {
        continue;
      }
      Use(name, entry, at);
      return values;
    }
    return {};
  }

  // Counts a path as read, without a key of the form.
  void MarkRead(const std::string& path) { read_.insert(path); }
  KeyUse UseOf(const std::string& path) const;
  // Whether a path of the form leads to this key of each turn, or of any list:
  // `messages[].images`.
  bool IsReadOfTurns(const std::string& key) const;
  // The last path that `key` of the form read.
  std::string LastRead(absl::string_view key) const;
  const std::string& LastUse() const { return used_.back().path; }
  std::vector<FormSample::Use> TakeUses() { return std::move(used_); }

  // The fault of a record without a value for these keys.
  absl::Status Missing(const char* name,
                       const std::vector<FormPaths>& keys) const;

 private:
  std::vector<simdjson::dom::element> Values(const FormPath& path,
                                             std::string* at) const;
  void Use(absl::string_view key, size_t entry, const std::string& path);
  std::string Names() const;

  const v1::Source::Form& form_;
  const std::vector<std::string>& fields_;
  const RecipeRecord& record_;
  std::string json_;
  simdjson::dom::parser parser_;  // of a large record
  simdjson::dom::object root_;
  uint64_t keys_ = 0;  // KeyBit of each, also of those of a tar's `json`
  std::set<std::string> read_;
  std::vector<FormSample::Use> used_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_FORM_RECORD_H_
