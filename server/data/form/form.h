#ifndef BALLAST_SERVER_DATA_FORM_FORM_H_
#define BALLAST_SERVER_DATA_FORM_FORM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/recipe/recipe.h"

namespace ballast {

// A sample as a form makes it of a record.
struct FormSample {
  CookedSample sample;
  // Media that the record has as text, in base64: the part after those of the
  // record, and so on.
  std::vector<std::string> media;
  // The keys that were read, for each key of the form; in the order of the
  // form, each once.
  struct Use {
    std::string key;   // of the form: "images"
    size_t entry = 0;  // of its list
    std::string path;  // of the record: "image"
  };
  std::vector<Use> used;
};

// Makes samples of records by a form (Source.form): one evaluation for all
// formats. A record is a tree of names and values: an object of JSON, a row, or
// the members of a tar's sample by their endings; its media are places in the
// data file, which are not read. Thread-safe; pure.
class FormReader {
 public:
  // `fields`: names of numbers that travel with the samples (Source.fields).
  // Errors: INVALID_ARGUMENT (as CompleteForm; a path that is none; a form that
  // reads no text, or two kinds of them), with the key.
  static absl::StatusOr<FormReader> Create(const v1::Source::Form& form,
                                           std::vector<std::string> fields);

  // Errors: a data fault that names the key, what was found and what was
  // wanted.
  absl::StatusOr<FormSample> Read(const RecipeRecord& record) const;

  // A step of a path: a name, an entry of a list, or all of them.
  struct Step {
    enum class Kind { kName, kEntry, kAll };
    Kind kind = Kind::kName;
    std::string name;
    size_t entry = 0;
  };
  struct Path {
    std::string text;
    std::vector<Step> steps;
  };
  // The first of these paths that a record has.
  struct Key {
    std::string text;  // as written
    std::vector<Path> paths;
  };

 private:
  friend class FormEvaluation;

  v1::Source::Form form_;
  std::vector<Key> images_, videos_, audios_, messages_, user_, assistant_;
  std::vector<Key> system_, history_, text_;  // none or one
  std::vector<std::string> fields_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_FORM_H_
