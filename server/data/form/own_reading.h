#ifndef BALLAST_SERVER_DATA_FORM_OWN_READING_H_
#define BALLAST_SERVER_DATA_FORM_OWN_READING_H_

#include "absl/status/status.h"
#include "server/recipe/recipe.h"

namespace ballast {

// Whether the reading of a record by its format, without a form, passes over a
// key that may be media, values of marks or a verdict on the answer, or learns
// a document that is the text of another record. OK if the record is no JSON.
// Errors: as CheckEveryKey and CheckNoRecordWithin. Pure.
absl::Status CheckOwnReading(const RecipeRecord& record);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_FORM_OWN_READING_H_
