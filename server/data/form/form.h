#ifndef BALLAST_SERVER_DATA_FORM_FORM_H_
#define BALLAST_SERVER_DATA_FORM_FORM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/data/form/form_path.h"
#include "server/data/form/form_sample.h"
#include "server/recipe/recipe.h"

namespace ballast {

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

 private:
  friend class FormEvaluation;

  v1::Source::Form form_;
  std::vector<FormPaths> images_, videos_, audios_, messages_, user_,
      assistant_;
  std::vector<FormPaths> system_, history_, text_;  // none or one
  std::vector<std::string> fields_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_FORM_H_
