#ifndef BALLAST_SERVER_CORPUS_PARQUET_PARQUET_COLUMNS_H_
#define BALLAST_SERVER_CORPUS_PARQUET_PARQUET_COLUMNS_H_

#include <string>
#include <vector>

#include "proto/config.pb.h"
#include "server/config/source_fields.h"

namespace ballast {

// The shape of a column of text. Turns may also be the JSON of a list of them.
enum class TurnShape {
  kConversations,  // a list of {from, value}
  kMessages,       // a list of {role, content}
  kTexts,          // a list of {user, assistant}
  kPlaces,         // a document: a list of texts and nulls, beside images
  kText,           // a document
};

// "conversations", "messages", "texts" or "text": the usual name of such a
// column.
const char* GetName(TurnShape shape);

// The columns of Parquet files that make a sample.
struct ParquetColumns {
  // For a recipe: all columns, and nothing of the rest but the filters.
  bool whole_rows = false;
  // Both columns follow from the file's schema; the next three are unused.
  bool recognise = false;
  // The user names the columns one by one.
  bool named = false;
  // Rows are preference pairs; `recognise` is true.
  bool pairs = false;
  std::string images;  // empty: samples without images
  std::string audios;  // likewise
  std::string turns;
  TurnShape shape = TurnShape::kConversations;
  // Names of sources[].fields, which are columns, or keys of turns where
  // `turn_fields` has them; of `may_lack` neither need be there.
  std::vector<std::string> fields;
  std::vector<std::string> turn_fields;
  std::vector<std::string> may_lack;
  // A row that fails one of them is no sample.
  std::vector<RowFilter> filters;
};

// The columns that `source`, a loaded one, names by `columns` or `preset`.
ParquetColumns GetParquetColumns(const v1::Source& source);

// Everything in `source` that decides which sample a row is: two sources with
// the same text read the same samples from the same files.
std::string ParquetColumnsKey(const v1::Source& source);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_PARQUET_COLUMNS_H_
