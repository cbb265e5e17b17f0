#ifndef BALLAST_TESTS_DOCS_PROTO_REFERENCE_H_
#define BALLAST_TESTS_DOCS_PROTO_REFERENCE_H_

#include <string>
#include <vector>

namespace ballast {

// The pages of docs/reference, out of proto/*.proto and what stands in their
// comments: a page is never edited by hand, and cannot be behind.
//
//   bazel run //tests/docs:make_reference        writes them
//   bazel test //tests/docs:reference_test       fails where they are stale

struct ReferencePage {
  std::string path;  // "docs/reference/rpc.md"
  std::string text;
};

// From tests/docs/descriptors.bin, below the working directory. Ends the
// process with a message where that cannot be read.
std::vector<ReferencePage> MakeReference();

}  // namespace ballast

#endif  // BALLAST_TESTS_DOCS_PROTO_REFERENCE_H_
