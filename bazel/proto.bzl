"""cc_grpc_library: .proto files compiled by the system's protoc.

Debian's protobuf has no Bazel targets, so /usr/bin/protoc and
/usr/bin/grpc_cpp_plugin are run directly.
"""

load("//bazel:cc.bzl", "cc_library")

# Custom options concern descriptors alone: their header, which reads all of
# descriptor.pb.h, belongs in a .pb.cc and not in every user's file.
_MOVE_OPTIONS = """
for header in $$(grep -l '"proto/options.pb.h"' {headers}); do
  sed -i '\\,"proto/options.pb.h",d' $$header
  sed -i '1i#include "proto/options.pb.h"' $${{header%.h}}.cc
done
"""

def cc_grpc_library(name, srcs, deps = [], grpc = False, **kwargs):
    """Generates and compiles C++ for `srcs`.

    Args:
      name: the cc_library that others depend on.
      srcs: the .proto files, in this package.
      deps: cc_grpc_library targets of the files that `srcs` import; each has its
        .proto files in the filegroup NAME_src.
      grpc: whether each of `srcs` declares services.
      **kwargs: passed on to the cc_library.
    """
    stems = [src[:-len(".proto")] for src in srcs]
    kinds = [".pb", ".grpc.pb"] if grpc else [".pb"]
    sources = [stem + kind + ".cc" for stem in stems for kind in kinds]
    headers = [stem + kind + ".h" for stem in stems for kind in kinds]
    command = "/usr/bin/protoc --proto_path=. --cpp_out=$(GENDIR)"
    if grpc:
        command += " --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin"
    native.filegroup(
        name = name + "_src",
        srcs = srcs + [dep + "_src" for dep in deps],
    )
    native.genrule(
        name = name + "_gen",
        srcs = [":" + name + "_src"],
        outs = sources + headers,
        cmd = " ".join([command] + ["$(location %s)" % src for src in srcs]) +
              _MOVE_OPTIONS.format(headers = " ".join(["$(location %s)" % h for h in headers])),
        tools = srcs,
        # For what is precompiled.
        visibility = ["//bazel:__pkg__"],
    )
    cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        apart = sources,
        # No warnings for generated code.
        copts = ["-w"],
        deps = deps + ["//third_party:grpc" if grpc else "//third_party:protobuf"],
        **kwargs
    )
