#ifndef BALLAST_SERVER_DATA_INDEX_BAD_RECORDS_H_
#define BALLAST_SERVER_DATA_INDEX_BAD_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "server/data/index/index_file.h"
#include "server/data/index/index_options.h"

namespace ballast {

// The records that an index leaves out as bad stand beside it, in the file
// NAME.index.bad: JSON lines, a head and one for each record. So every run of
// `index` shows them again, and servers know what was left out.

// The cause by which a bad record is counted: its kind, else its reason without
// quoted texts, paths and numbers, which are the record's own.
std::string GetCause(const BadSample& bad);

// The path of the list beside the index `path`.
std::string BadRecordsPath(absl::string_view path);

// Writes the list of the index `path` whose samples have `digest`
// (IndexFile::digest), or removes it where nothing is bad. Errors: as
// WriteFileAtomically.
absl::Status WriteBadRecords(const std::string& path, absl::string_view digest,
                             absl::Span<const BadSample> bad);

// The list beside `index`. Errors: NOT_FOUND (there is none), DATA_LOSS (it is
// of another index, or damaged).
absl::StatusOr<std::vector<BadSample>> ReadBadRecords(const IndexFile& index);

// A summary of `bad` and of `unlisted` other bad records of a source with
// `samples` samples.
v1::LeftOut SummariseBad(const std::string& source, uint64_t samples,
                         absl::Span<const BadSample> bad, uint64_t unlisted);

// The same of an index, from the head of its list. Without a list it counts the
// records that the index itself has as bad, and knows no cause.
v1::LeftOut GetLeftOut(const v1::Source& source, const IndexFile& index);

// FAILED_PRECONDITION if more records are bad than source.max_bad allows: names
// their causes with examples, `list`, the path of the list, and what to do.
absl::Status CheckLeftOut(const v1::Source& source, const v1::LeftOut& left_out,
                          absl::string_view list);

// "3 of 140 records left out as bad: 2 image missing, 1 other"; empty if none
// is.
std::string DescribeLeftOut(const v1::LeftOut& left_out);

// The lines of `index`: of each cause, the commonest first, its number and the
// first ten records.
std::string ListBad(absl::Span<const BadSample> bad);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_INDEX_BAD_RECORDS_H_
