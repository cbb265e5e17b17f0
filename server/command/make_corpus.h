#ifndef BALLAST_SERVER_COMMAND_MAKE_CORPUS_H_
#define BALLAST_SERVER_COMMAND_MAKE_CORPUS_H_

#include "common/command_line.h"

namespace ballast {

// Adds `make-corpus`, which draws a dataset.
void AddMakeCorpus(CommandLine* line);

// Adds `repack`: writes the samples of a source as WebDataset tars.
void AddRepack(CommandLine* line);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_MAKE_CORPUS_H_
