#ifndef BALLAST_SERVER_COMMAND_INIT_FIRST_SAMPLES_H_
#define BALLAST_SERVER_COMMAND_INIT_FIRST_SAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/command/init/data_tree.h"
#include "server/data/record_parser.h"

namespace ballast {

// Reads the first samples of `files`, in order, with the code that indexes
// them, and fills in the facts about them: counts, faults, images and text. A
// file that cannot be read counts as bad, with its reason. Blocks on the disk:
// reads at most some hundred samples, and counts the samples of at most 1 GiB.
// Of a store it reads 64 samples and counts no more, or the rows of 16 files.
//
// `roots`: candidates of a media_root in `tree`, of which as few are taken as
// have all media, that with most of them first; then the folders to which
// absolute paths and `..` lead.
//
// Where the format's own form does not fit all records, `given` forms are
// tried, or those of forms/, and the best one is taken if it explains more of
// them.
void LookAtFirstSamples(const std::vector<std::string>& files,
                        const std::vector<std::string>& roots,
                        const std::vector<v1::Source::Form>& given,
                        DataTree* tree, SeenFiles* seen);

// Record `number` of a source's files, from 0, as a recipe is given it: without
// an index, and whether the source has a recipe or not. Records that cannot be
// read are reported to standard error if `reports`. Errors: NOT_FOUND; as
// RawRecordParser::Scan and ListSourceFiles.
absl::StatusOr<RawRecord> FindRecord(const v1::Source& source,
                                     const std::string& directory,
                                     uint64_t number, bool reports);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_FIRST_SAMPLES_H_
