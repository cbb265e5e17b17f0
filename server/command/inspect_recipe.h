#ifndef BALLAST_SERVER_COMMAND_INSPECT_RECIPE_H_
#define BALLAST_SERVER_COMMAND_INSPECT_RECIPE_H_

#include "common/command_line.h"

namespace ballast {

// Adds `inspect recipe`, which runs the recipe of a source on one record and
// prints what it was given and what it gave. Needs no index.
void AddInspectRecipe(CommandLine* line, Command* inspect);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_RECIPE_H_
