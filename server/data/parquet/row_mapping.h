#ifndef BALLAST_SERVER_DATA_PARQUET_ROW_MAPPING_H_
#define BALLAST_SERVER_DATA_PARQUET_ROW_MAPPING_H_

#include <string>
#include <vector>

#include <arrow/type_fwd.h>

#include "absl/status/statusor.h"
#include "server/data/parquet/parquet_file.h"

namespace ballast {

// The columns of one schema that make a sample; all exist and have fitting
// types.
struct RowMapping {
  // With ParquetColumns::whole_rows: all columns, instead of the following but
  // the filters.
  std::vector<std::string> whole;
  std::string images;  // empty: none
  std::string videos;  // likewise
  std::string audios;
  std::string turns;
  TurnShape shape = TurnShape::kConversations;
  // Parts of `content` have a field of images, which is not read.
  bool parts_hold_images = false;
  // The columns of a preference pair are among `beside`, and `turns` is one.
  bool is_pair = false;
  std::vector<std::string> beside;       // of kBeside
  std::vector<std::string> fields;       // columns of sources[].fields
  std::vector<std::string> turn_fields;  // in the structs of turns
  std::vector<RowFilter> filters;
};

// The fields of a turn, in the struct that a list of turns has.
struct TurnFields {
  const char* first;
  const char* second;
};
TurnFields GetFields(TurnShape shape);

// The fields of a part of an image or a video that say which of its frames and
// pixels are meant: starts, ends, rates and bounds, as conversations in JSON
// name them.
inline constexpr const char* kPartSettings[] = {
    "start",      "end",          "video_start",    "video_end",
    "fps",        "sample_fps",   "raw_fps",        "nframes",
    "num_frames", "min_frames",   "max_frames",     "min_pixels",
    "max_pixels", "total_pixels", "resized_height", "resized_width"};

// The fields of a turn that say how much it counts, and the others that some
// templates write.
inline constexpr const char* kTurnSettings[] = {"weight", "loss", "train"};
inline constexpr const char* kTurnKeys[] = {
    "tool_calls", "function_call", "reasoning_content",
    "reasoning",  "thinking",      "tool_call_id",
    "name",       "refusal",       "tool_plan"};

// Types of parts whose text is a field of the same name.
inline constexpr const char* kTextParts[] = {"thinking", "reasoning",
                                             "refusal"};

// The columns of a preference pair: texts, lists and structs.
inline constexpr const char* kPairColumns[] = {
    "chosen",   "rejected",      "rejected_response", "rejected_messages",
    "messages", "conversations", "conversation",      "prompt"};

// The columns of texts, lists and structs next to the turns.
inline constexpr const char* kBeside[] = {"system", "tools", "documents"};

// Finds the columns. Pure. Errors: FAILED_PRECONDITION, as OpenParquetFile.
absl::StatusOr<RowMapping> MapColumns(const arrow::Schema& schema,
                                      const ParquetColumns& columns);

// Names of the columns to read, each once.
std::vector<std::string> ColumnsToRead(const RowMapping& mapping);

// Whether a field of a struct inside column `column` is read; others are
// pruned. Of kTurnKeys and kBeside all that is inside is read.
bool IsRead(const RowMapping& mapping, const std::string& column,
            const std::string& field);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_ROW_MAPPING_H_
