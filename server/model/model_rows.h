#ifndef BALLAST_SERVER_MODEL_MODEL_ROWS_H_
#define BALLAST_SERVER_MODEL_MODEL_ROWS_H_

#include "absl/strings/string_view.h"
#include "proto/model.pb.h"
#include "server/media/rows_rule.h"

namespace ballast {

// What the model of this name makes of media that travel as rows: of audio, or
// of the kind of its section `medium`; nullptr if it takes none, or there is no
// such model. Never destroyed. Thread-safe.
const RowsRule* FindRowsRule(absl::string_view name);
inline const RowsRule* GetRowsRule(const v1::Model& model) {
  return FindRowsRule(model.profile());
}

}  // namespace ballast

#endif  // BALLAST_SERVER_MODEL_MODEL_ROWS_H_
