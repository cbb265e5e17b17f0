"""cc_library, cc_binary and cc_test that read headers seldom, and link_only.

Reading headers is most of what a compilation of this project does. These macros

- include one precompiled header in every .cc file: bazel/system_headers.h; also
  bazel/message_headers.h in tests and where the target names //proto:messages or
  //proto:services among its deps; in tests also bazel/test_headers.h. Whoever reads a
  header is linked with its libraries, but not with our messages: BUILD files name neither
  Abseil nor GoogleTest;
- compile the .cc files of a target as one or a few, which read the headers that they
  share once. Files that have a name in their unnamed namespaces in common are kept apart.

A file still includes what it needs:

    bazel build --define=precompiled=0 --define=joined=0 //...

builds without either. A target with an -O among its copts is left out: GCC refuses
a header that was compiled with other options. Whatever is in tests/ is testonly.
"""

# A target that names one of them among its deps reads bazel/message_headers.h.
_MESSAGES = ["//proto:messages", "//proto:services"]

# A joined file for each so many .cc files, and one more: most stay empty.
_JOINED = 8

def _compiled(args, wanted, apart):
    """`args` of a rule, with files joined, and the options and the dependency that include a
    precompiled header."""
    copts = args.pop("copts", [])
    srcs = args.get("srcs", [])
    if type(srcs) == "select":
        srcs = []
    suffixes = [src[src.rfind("."):] for src in srcs]
    optimised = [option for option in copts if option.startswith("-O")]
    if not wanted or optimised or ".cc" not in suffixes or ".c" in suffixes:
        return dict(args, copts = copts)
    deps = args.get("deps", [])
    header = "//bazel:precompiled"
    if args.get("testonly"):
        header += "_for_tests"
    elif type(deps) != "select" and [dep for dep in deps if dep in _MESSAGES]:
        header += "_with_messages"
    include = ["-include", "$(BINDIR)/" + header[2:].replace(":", "/") + ".h", "-Winvalid-pch"]
    args = _joined(args, apart)
    return dict(
        args,
        copts = copts + select({
            "//bazel:no_precompiled": [],
            "//conditions:default": include,
        }),
        deps = args.get("deps", []) + [header],
    )

def _joined(args, apart):
    """`args` of a rule, with files that include its .cc files but those in `apart`."""
    srcs = args.get("srcs", [])
    if type(srcs) == "select":
        return args
    files = [src for src in srcs if src.endswith(".cc") and src not in apart]
    if len(files) < 2:
        return args
    options = {key: args[key] for key in ["testonly", "tags"] if key in args}
    name = args["name"]
    native.cc_library(
        name = name + "_joined",
        textual_hdrs = files,
        visibility = ["//visibility:private"],
        **options
    )
    # All but the first are for files that have names in common with others.
    outs = ["%s_joined_%d.cc" % (name, i + 1) for i in range(-(-len(files) // _JOINED) + 1)]
    native.genrule(
        name = name + "_joined_files",
        srcs = files,
        outs = outs,
        cmd = "python3 $(location //bazel:join_sources.py) $(OUTS) -- $(SRCS)",
        tools = ["//bazel:join_sources.py"],
        visibility = ["//visibility:private"],
        **options
    )
    return dict(
        args,
        srcs = select({
            "//bazel:not_joined": srcs,
            "//conditions:default": [src for src in srcs if src not in files] + outs,
        }),
        deps = args.get("deps", []) + [name + "_joined"],
    )

def _in_tests(args):
    return dict(args, testonly = True) if native.package_name().startswith("tests/") else args

def cc_library(precompiled = True, apart = [], **kwargs):
    """A native cc_library; `precompiled = False` leaves its files alone, and those in
    `apart` are compiled one by one."""
    kwargs = _in_tests(kwargs)
    native.cc_library(**_compiled(kwargs, precompiled, apart))

def cc_binary(precompiled = True, apart = [], **kwargs):
    """A native cc_binary, with the options of `cc_library`."""
    kwargs = _in_tests(kwargs)
    native.cc_binary(**_compiled(kwargs, precompiled, apart))

def cc_test(precompiled = True, apart = [], **kwargs):
    """A native cc_test, with the options of `cc_library`."""
    native.cc_test(**_compiled(dict(kwargs, testonly = True), precompiled, apart))

def _link_only_impl(ctx):
    info = ctx.attr.library[CcInfo]
    return [
        CcInfo(linking_context = info.linking_context),
        DefaultInfo(files = ctx.attr.library[DefaultInfo].files),
    ]

# A library to link with whose headers and options stay its own. A cc_library passes
# the include paths of its dependencies on to everything that depends on it. (Later
# versions of Bazel call the way out implementation_deps.)
link_only = rule(
    implementation = _link_only_impl,
    attrs = {"library": attr.label(mandatory = True, providers = [CcInfo])},
    provides = [CcInfo],
)
