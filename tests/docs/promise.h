#ifndef BALLAST_TESTS_DOCS_PROMISE_H_
#define BALLAST_TESTS_DOCS_PROMISE_H_

#include <string>
#include <vector>

namespace ballast {

// What a release keeps (docs/upgrading.md), one line a thing, in the order of its
// files: RPCs, fields and enum values of proto/*.proto with their numbers, keys of
// the configuration with their defaults, declarations of the C interface, names of
// the Python package, versions of the formats.
//
//   field ballast.v1.Serve.memory = 4 uint64, default 8GiB
//   rpc ballast.v1.ScheduleService.GetSchedule(GetScheduleRequest) -> StepSchedule
//   c struct ballast_totals { uint32_t struct_size; uint64_t tokens; …
//
// Reads the sources: for tests with //tests/docs:promise among their data.
std::vector<std::string> ListPromise();

// The lines of `released` that `now` breaks, each with what stands there instead.
// A line is kept if `now` has it; a C struct or enum also if its members begin with
// those released.
std::vector<std::string> FindBroken(const std::vector<std::string>& released,
                                    const std::vector<std::string>& now);

}  // namespace ballast

#endif  // BALLAST_TESTS_DOCS_PROMISE_H_
