"""cc_grpc_library: one .proto file compiled by the system's protoc.

Debian's protobuf has no Bazel targets, so /usr/bin/protoc and
/usr/bin/grpc_cpp_plugin are run directly.
"""

load("//bazel:cc.bzl", "cc_library")

def cc_grpc_library(name, src, deps = [], grpc = False, **kwargs):
    """Generates and compiles C++ for `src`.

    Args:
      name: the cc_library that others depend on.
      src: the .proto file, in this package.
      deps: cc_grpc_library targets of the files that `src` imports; each must
        have its .proto in the filegroup NAME_src.
      grpc: whether `src` declares services.
      **kwargs: passed on to the cc_library.
    """
    stem = src[:-len(".proto")]
    outs = [stem + ".pb.cc", stem + ".pb.h"]
    command = "/usr/bin/protoc --proto_path=. --cpp_out=$(GENDIR)"
    if grpc:
        outs += [stem + ".grpc.pb.cc", stem + ".grpc.pb.h"]
        command += " --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin"
    command += " $(location {})".format(src)
    if [dep for dep in deps if dep.endswith(":options_cc_proto")]:
        # Custom options concern descriptors alone: their header, which reads all of
        # descriptor.pb.h, belongs in one .pb.cc and not in every user's file.
        include = "#include \"proto/options.pb.h\""
        command += " && sed -i '\\,{},d' $(RULEDIR)/{}.pb.h".format(include, stem)
        command += " && sed -i '1i{}' $(RULEDIR)/{}.pb.cc".format(include, stem)
    native.filegroup(
        name = name + "_src",
        srcs = [src] + [dep + "_src" for dep in deps],
    )
    native.genrule(
        name = name + "_gen",
        srcs = [":" + name + "_src"],
        outs = outs,
        cmd = command,
        tools = [src],
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = [o for o in outs if o.endswith(".cc")],
        hdrs = [o for o in outs if o.endswith(".h")],
        # No warnings for generated code.
        copts = ["-w"],
        deps = deps + ["//third_party:grpc" if grpc else "//third_party:protobuf"],
        **kwargs
    )
