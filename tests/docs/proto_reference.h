#ifndef BALLAST_TESTS_DOCS_PROTO_REFERENCE_H_
#define BALLAST_TESTS_DOCS_PROTO_REFERENCE_H_

#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>

namespace ballast {

// Generates the pages of docs/reference from proto/*.proto and their comments.
// The pages are never edited by hand and cannot be out of date.
//
//   bazel run //tests/docs:make_reference        writes them
//   bazel test //tests/docs:docs_test            fails if they are stale

struct ReferencePage {
  std::string path;  // "docs/reference/rpc.md"
  std::string text;
};

// The keys of a configuration's section and of all sections within, as
// docs/reference/configuration.md has them.
std::string KeyReference(const google::protobuf::Descriptor& section);

// Reads tests/docs/descriptors.bin below the working directory. Exits with a
// message if it cannot be read.
std::vector<ReferencePage> MakeReference();

}  // namespace ballast

#endif  // BALLAST_TESTS_DOCS_PROTO_REFERENCE_H_
